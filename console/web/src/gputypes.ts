// GPU types: what each does with a byte, an operation and a watt. Read once, when the panel is opened.

import uPlot from "uplot";
import { getJson } from "./connection";
import { element, make, say } from "./dom";

interface Points {
  intensity: number[];
  flopsPerSecond: number[];
  drawWatts: (number | null)[];
  held: boolean[];
}

interface Curve {
  capWatts: number[];
  throughput: number[];
  drawWatts: number[];
  provenance: string;
  errorShare: number;
  errorKind: string;
}

interface GpuType {
  model: string;
  idleWatts: number;
  kneeWatts: number;
  minLimitWatts: number;
  limitWatts: number;
  roofs: { bytesPerSecond: number; flopsPerSecond: Record<string, number> } | null;
  points: Record<string, Points>;
  curves: Record<string, Curve>;
}

type Column = (number | null)[];
interface Layer {
  name: string;
  x: number[];
  y: Column;
  line?: number[] | true; // drawn as a line, dashed so; else as points
  hue: number; // place in the palette; -1 is ink
}

const HEIGHT = 260;
const NAMES: Record<string, string> = { gemm: "matrix products", attention_prefill: "attention, prefill", attention_decode: "attention, decode", step_prefill: "whole steps, prefill", step_decode: "whole steps, decode" };
const PALETTE = ["--type-a", "--type-b", "--type-c", "--type-d", "--type-e"];
const TERA = 1e12;

export class GpuTypesPanel {
  private types: GpuType[] | null = null;
  private plots: uPlot[] = [];
  private readonly panel = element<HTMLDetailsElement>("gpu-types");
  private readonly choice = element<HTMLSelectElement>("gpu-type-choice");

  constructor() {
    this.panel.addEventListener("toggle", () => void this.open());
    this.choice.addEventListener("change", () => this.draw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    new ResizeObserver(() => this.resize()).observe(element("gpu-type-charts"));
  }

  private async open(): Promise<void> {
    if (!this.panel.open || this.types !== null) return;
    this.types = await getJson<GpuType[]>("api/v1/gpu-types");
    if (this.types === null) {
      say(element("gpu-type-note"), "No answer from the console; close and open the panel to ask again.");
      return;
    }
    this.choice.replaceChildren(...this.types.map((type) => new Option(type.model)));
    this.draw();
  }

  private draw(): void {
    const type = this.types?.[this.choice.selectedIndex];
    for (const plot of this.plots) plot.destroy();
    this.plots = [];
    if (type === undefined) return;
    say(element("gpu-type-note"), note(type));
    const measured = Object.keys(type.points).length > 0;
    element("gpu-roofline").parentElement!.hidden = element("gpu-draw").parentElement!.hidden = !measured;
    if (measured) {
      this.add("gpu-roofline", roofline(type), { log: true, y: (v) => `${Number(v.toPrecision(3))}` });
      this.add("gpu-draw", draws(type), { log: false, y: (v) => `${v} W` });
    }
    this.add("gpu-curve", curves(type), { log: false, linearX: true, y: (v) => `${Math.round(100 * v)} %` });
  }

  private add(host: string, layers: Layer[], axes: Axes): void {
    const target = element(host);
    target.replaceChildren();
    this.plots.push(chart(target, layers, axes));
    const keys = layers.filter((layer) => layer.name !== "").map((layer) => key(layer));
    element(`${host}-legend`).replaceChildren(...keys);
  }

  private resize(): void {
    for (const plot of this.plots) plot.setSize({ width: plot.root.parentElement!.clientWidth, height: HEIGHT });
  }
}

interface Axes {
  log: boolean;
  linearX?: boolean;
  y: (value: number) => string;
}

function note(type: GpuType): string {
  const points = Object.values(type.points).reduce((sum, part) => sum + part.intensity.length, 0);
  const errors = Object.entries(type.curves).map(([name, curve]) => `${name} ${curve.provenance}, error ${(100 * curve.errorShare).toFixed(1)} %`);
  const seen = points === 0 ? "no kernels measured on this type" : `${points} kernels measured`;
  return `${seen}; idle ${Math.round(type.idleWatts)} W, limit ${Math.round(type.limitWatts)} W, knee ${Math.round(type.kneeWatts)} W. Cap curves: ${errors.join("; ")}.`;
}

function roofline(type: GpuType): Layer[] {
  const layers: Layer[] = [];
  const span = Object.values(type.points).flatMap((part) => part.intensity);
  const [low, high] = [Math.min(...span) / 1.5, Math.max(...span) * 1.5];
  if (type.roofs !== null) {
    const { bytesPerSecond, flopsPerSecond } = type.roofs;
    Object.entries(flopsPerSecond).forEach(([name, peak], i) => {
      const x = [...new Set([low, peak / bytesPerSecond, high])].sort((a, b) => a - b);
      layers.push({ name: `datasheet, ${name}`, x, y: x.map((v) => Math.min(peak, v * bytesPerSecond) / TERA), line: i === 0 ? true : [5, 4], hue: -1 });
    });
  }
  return layers.concat(groups(type, (part, i) => (part.flopsPerSecond[i] ?? 0) / TERA));
}

function draws(type: GpuType): Layer[] {
  const span = Object.values(type.points).flatMap((part) => part.intensity);
  const limit: Layer = { name: "limit", x: [Math.min(...span), Math.max(...span)], y: [type.limitWatts, type.limitWatts], line: true, hue: -1 };
  return [limit, ...groups(type, (part, i) => part.drawWatts[i] ?? null)];
}

function groups(type: GpuType, value: (part: Points, i: number) => number | null): Layer[] {
  return Object.keys(NAMES).flatMap((name, hue) => {
    const part = type.points[name];
    if (part === undefined) return [];
    return [{ name: NAMES[name] ?? name, x: part.intensity, y: part.intensity.map((_x, i) => value(part, i)), hue }];
  });
}

function curves(type: GpuType): Layer[] {
  return Object.entries(type.curves).map(([name, curve], hue) => ({ name, x: curve.capWatts, y: curve.throughput, line: true as const, hue }));
}

/** Points of one x stand together in uPlot's columns; twins are moved by less than can be seen. */
function apart(x: number[]): number[] {
  let last = -Infinity;
  return x.map((value) => (last = value > last ? value : last * (1 + 1e-9)));
}

function chart(host: HTMLElement, layers: Layer[], axes: Axes): uPlot {
  const data = uPlot.join(layers.map((layer) => [apart(layer.x), layer.y] as uPlot.AlignedData));
  const axis: uPlot.Axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") }, font: "12px system-ui, sans-serif", size: 34 };
  return new uPlot(
    {
      width: host.clientWidth,
      height: HEIGHT,
      legend: { show: false },
      cursor: { show: false },
      scales: { x: { time: false, distr: axes.linearX ? 1 : 3 }, y: { distr: axes.log ? 3 : 1, ...(axes.log ? {} : { range: (_plot, _low, high) => [0, high * 1.04] as [number, number] }) } },
      padding: [8, 32, 0, 0],
      axes: [
        { ...axis, values: (_plot, ticks) => ticks.map((t) => (t === null ? "" : axes.linearX ? `${t} W` : `${Number(t.toPrecision(2))}`)) },
        { ...axis, size: 58, values: (_plot, ticks) => ticks.map((t) => (t === null ? "" : axes.y(t))) },
      ],
      series: [{}, ...layers.map(series)],
    },
    data,
    host,
  );
}

function series(layer: Layer): uPlot.Series {
  const stroke = hue(layer.hue);
  if (layer.line === undefined) return { paths: () => null, stroke, points: { show: true, size: 5, stroke, fill: stroke } };
  return { stroke, width: 1.6, spanGaps: true, points: { show: false }, ...(layer.line === true ? {} : { dash: layer.line }) };
}

function key(layer: Layer): HTMLElement {
  const mark = make("span", layer.line === undefined ? "dot" : layer.line === true ? "dash" : "dash broken");
  mark.style.color = hue(layer.hue);
  return make("span", "key-of", mark, layer.name);
}

function hue(place: number): string {
  return colour(place < 0 ? "--ink" : (PALETTE[place % PALETTE.length] ?? "--ink"));
}

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
