// Power of one domain: the last half hour on an axis of minutes, the next hours on one of hours.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { getJson } from "./connection";
import { kilowatts } from "./format";
import type { Domain, Forecast } from "./model";

interface History {
  timeMs: number[];
  drawWatts: (number | null)[];
  capBandWatts: (number | null)[];
}

type Column = (number | null)[];
type Hours = [number[], Column, Column, Column, Column];

const POINTS = 1800;
const HEIGHT = 250;
const GAP_MS = 5000; // by the page's own clock: a simulation may run faster
const PAST_SHARE = 0.62;

export class PowerChart {
  private past: uPlot | null = null;
  private future: uPlot | null = null;
  private domain: Domain | null = null;
  private forecast: Forecast | null = null;
  private name = "";
  private waiting: History | null = null;
  private columns: [number[], (number | null)[], (number | null)[]] = [[], [], []];
  private lastAtMs = 0;

  constructor(
    private readonly pastHost: HTMLElement,
    private readonly futureHost: HTMLElement,
    private readonly note: HTMLElement,
  ) {
    new ResizeObserver(() => this.resize()).observe(this.room());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
  }

  async choose(name: string): Promise<void> {
    this.name = name;
    this.columns = [[], [], []];
    this.lastAtMs = 0;
    this.waiting = { timeMs: [], drawWatts: [], capBandWatts: [] };
    const kept = await getJson<History>(`api/v1/history/${encodeURIComponent(name)}`);
    if (this.name !== name) return;
    const live = this.waiting;
    this.waiting = null;
    const newest = kept?.timeMs.at(-1) ?? -1;
    for (const part of [kept, live]) {
      part?.timeMs.forEach((time, i) => {
        if (part === kept || time > newest) this.push(time / 1000, part.drawWatts[i] ?? null, part.capBandWatts[i] ?? null);
      });
    }
    this.draw();
  }

  add(timeMs: number, domain: Domain, forecast: Forecast | null): void {
    if (domain.name !== this.name) return;
    this.domain = domain;
    this.forecast = forecast;
    if (this.waiting !== null) {
      this.waiting.timeMs.push(timeMs);
      this.waiting.drawWatts.push(domain.draw_watts);
      this.waiting.capBandWatts.push(domain.cap_band_watts);
      return;
    }
    const last = this.columns[0].at(-1);
    if (last !== undefined && timeMs / 1000 <= last) return;
    const now = performance.now();
    if (last !== undefined && this.lastAtMs > 0 && now - this.lastAtMs > GAP_MS) this.push((last + timeMs / 1000) / 2, null, null);
    this.lastAtMs = now;
    this.push(timeMs / 1000, domain.draw_watts, domain.cap_band_watts);
    this.draw();
  }

  private push(time: number, draw: number | null, band: number | null): void {
    this.columns[0].push(time);
    this.columns[1].push(draw);
    this.columns[2].push(band);
    for (const column of this.columns) if (column.length > POINTS) column.shift();
  }

  private draw(): void {
    const domain = this.domain;
    if (domain === null || domain.name !== this.name || this.columns[0].length === 0) return;
    const times = this.columns[0];
    const now = times.at(-1) ?? 0;
    const trusted = domain.forecast_state === "Forecast" && this.forecast !== null;
    const hours = this.hours(domain, now, trusted);
    const seen = [...this.columns[1], ...this.columns[2], ...hours[1], ...hours[2], domain.rating_watts].filter((v): v is number => v !== null && v !== undefined);
    const range: [number, number] = [Math.max(0, Math.min(...seen) * 0.92), Math.max(...seen) * 1.04];
    const past = [times, this.columns[1], this.columns[2], times.map(() => domain.rating_watts)] as uPlot.AlignedData;
    if (this.past === null || this.future === null) {
      this.past = this.createPast(past);
      this.future = this.createFuture(hours as uPlot.AlignedData);
    } else {
      this.past.setData(past);
      this.future.setData(hours as uPlot.AlignedData);
    }
    for (const plot of [this.past, this.future]) plot.setScale("y", { min: range[0], max: range[1] });
    const text = trusted ? "" : domain.forecast_reason || "no forecast";
    if (this.note.textContent !== text) this.note.textContent = text;
  }

  /** Hours from now, p50, p99, cap band, rating. */
  private hours(domain: Domain, now: number, trusted: boolean): Hours {
    const ends = [0, 6];
    if (!trusted || this.forecast === null) {
      const level = (watts: number | null): (number | null)[] => (domain.forecast_state === "Contradicted" || domain.forecast_state === "NoForecast" ? [null, null] : [watts, watts]);
      return [ends, level(domain.forecast_p50_watts), level(domain.forecast_p99_watts), ends.map(() => domain.cap_band_watts), ends.map(() => domain.rating_watts)];
    }
    const { start_seconds, step_seconds, p50_watts, p99_watts } = this.forecast;
    const rows = p50_watts
      .map((p50, i) => [(start_seconds + (i + 0.5) * step_seconds - now) / 3600, p50, p99_watts[i] ?? null] as const)
      .filter(([hour]) => hour >= 0);
    return [rows.map((r) => r[0]), rows.map((r) => r[1]), rows.map((r) => r[2]), rows.map(() => domain.cap_band_watts), rows.map(() => domain.rating_watts)];
  }

  private room(): Element {
    return this.pastHost.closest(".charts") ?? this.pastHost;
  }

  private widths(): [number, number] {
    const whole = this.room().clientWidth - 8;
    return whole < 460 ? [whole, whole] : [Math.floor(whole * PAST_SHARE), Math.floor(whole * (1 - PAST_SHARE))];
  }

  private resize(): void {
    const [past, future] = this.widths();
    this.past?.setSize({ width: past, height: HEIGHT });
    this.future?.setSize({ width: future, height: HEIGHT });
  }

  private recolour(): void {
    this.past?.destroy();
    this.future?.destroy();
    this.past = this.future = null;
    this.draw();
  }

  private createPast(data: uPlot.AlignedData): uPlot {
    const { axis, y, line } = look();
    const clock = (_plot: uPlot, ticks: number[]): string[] => ticks.map((t) => new Date(t * 1000).toISOString().slice(11, 16));
    const seconds = (_plot: uPlot, ticks: number[]): string[] => ticks.map((t) => new Date(t * 1000).toISOString().slice(11, 19));
    return new uPlot(
      {
        width: this.widths()[0],
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false },
        scales: { x: { time: true }, y: { auto: false } },
        padding: [8, 24, 0, 0],
        axes: [{ ...axis, incrs: [1, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200], values: (plot, ticks) => ((ticks[1] ?? 0) - (ticks[0] ?? 0) < 60 ? seconds(plot, ticks) : clock(plot, ticks)), space: 70 }, y],
        series: [{}, line("--draw", 2), line("--band", 1.5, [6, 4]), line("--rating", 1.5)],
      },
      data,
      this.pastHost,
    );
  }

  private createFuture(data: uPlot.AlignedData): uPlot {
    const { axis, y, line } = look();
    return new uPlot(
      {
        width: this.widths()[1],
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false },
        scales: { x: { time: false, range: () => [0, 6] }, y: { auto: false } },
        padding: [8, 16, 0, 0],
        axes: [
          { ...axis, splits: () => [0, 1, 2, 3, 4, 5, 6], values: (_plot, ticks) => ticks.map((t) => (t === 0 ? "now" : `+${t} h`)), space: 10 },
          { ...y, size: 20, values: (_plot, ticks) => ticks.map(() => "") },
        ],
        series: [{}, line("--fan", 1.5), line("--fan", 1.5, [3, 3]), line("--band", 1.5, [6, 4]), line("--rating", 1.5)],
        bands: [{ series: [2, 1], fill: colour("--fan-fill") }],
      },
      data,
      this.futureHost,
    );
  }
}

export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function look(): { axis: uPlot.Axis; y: uPlot.Axis; line: (name: string, width: number, dash?: number[]) => uPlot.Series } {
  const axis: uPlot.Axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") }, font: "12px system-ui, sans-serif", size: 34 };
  return {
    axis,
    y: { ...axis, size: 70, values: (_plot, ticks) => ticks.map((tick) => kilowatts(tick).replace(".0 ", " ")) },
    line: (name, width, dash) => ({ points: { show: false }, stroke: colour(name), width, ...(dash ? { dash } : {}) }),
  };
}
