// A chart over hours from now, for what is expected of a domain or of a service.

import uPlot from "uplot";
import { element } from "./dom";
import { look } from "./power";

export const HEIGHT = 260;

const hourWords = (hour: number): string => (hour === 0 ? "now" : `${hour > 0 ? "+" : "−"}${Math.abs(hour)} h`);

export function chartWidth(host: string): number {
  return Math.max(240, element(host).clientWidth);
}

/** Drawn into the element of that id; `y` is its vertical axis. */
export function hourChart(host: string, y: uPlot.Axis, lines: Pick<uPlot.Options, "series" | "bands">, data: uPlot.AlignedData): uPlot {
  return new uPlot(
    {
      ...lines,
      width: chartWidth(host),
      height: HEIGHT,
      legend: { show: false },
      cursor: { y: false },
      scales: { x: { time: false }, y: { auto: false } },
      padding: [8, 16, 0, 0],
      axes: [{ ...look().axis, incrs: [1, 2, 3, 6, 12, 24, 48], values: (_plot, ticks) => ticks.map(hourWords), space: 44 }, y],
    },
    data,
    element(host),
  );
}
