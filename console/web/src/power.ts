// Power of one domain over the last half hour, its cap band and rating, and the forecast as a fan.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { Domain } from "./model";
import { getJson } from "./stream";

interface History {
  timeMs: number[];
  drawWatts: number[];
  capBandWatts: number[];
}

const FAN_SHARE = 0.25; // of the shown span, to the right of now
const POINTS = 1800;

export class PowerChart {
  private plot: uPlot | null = null;
  private domain = "";
  private columns: [number[], number[], number[], number[], number[], number[]] = [[], [], [], [], [], []];

  constructor(private readonly host: HTMLElement) {
    new ResizeObserver(() => this.plot?.setSize({ width: this.host.clientWidth, height: 240 })).observe(host);
  }

  async choose(domain: string): Promise<void> {
    this.domain = domain;
    this.columns = [[], [], [], [], [], []];
    const past = await getJson<History>(`api/v1/history/${encodeURIComponent(domain)}`);
    if (past === null || this.domain !== domain) return;
    past.timeMs.forEach((time, i) => this.push(time / 1000, past.drawWatts[i] ?? NaN, past.capBandWatts[i] ?? NaN));
  }

  add(timeMs: number, domain: Domain): void {
    if (domain.name !== this.domain) return;
    const last = this.columns[0].at(-1);
    if (last !== undefined && timeMs / 1000 <= last) return;
    this.push(timeMs / 1000, domain.draw_watts, domain.cap_band_watts);
    this.draw(domain);
  }

  private push(time: number, draw: number, band: number): void {
    this.columns[0].push(time);
    this.columns[1].push(draw);
    this.columns[2].push(band);
    for (const column of this.columns.slice(0, 3)) if (column.length > POINTS) column.shift();
  }

  private draw(domain: Domain): void {
    const times = this.columns[0];
    const now = times.at(-1) ?? 0;
    const span = Math.max(60, now - (times[0] ?? now));
    const future = [now + 1, now + span * FAN_SHARE];
    const none = times.map(() => null);
    const data = [
      [...times, ...future],
      [...this.columns[1], null, null],
      [...this.columns[2], domain.cap_band_watts, domain.cap_band_watts],
      [...times.map(() => domain.rating_watts), domain.rating_watts, domain.rating_watts],
      [...none, domain.forecast_p50_watts, domain.forecast_p50_watts],
      [...none, domain.forecast_p99_watts, domain.forecast_p99_watts],
    ] as uPlot.AlignedData;
    if (this.plot === null) this.plot = this.create(data);
    else this.plot.setData(data);
  }

  private create(data: uPlot.AlignedData): uPlot {
    const colour = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const options: uPlot.Options = {
      width: this.host.clientWidth,
      height: 240,
      legend: { show: false },
      cursor: { y: false },
      scales: { y: { range: (_plot, low, high) => [Math.max(0, low * 0.9), high * 1.03] } },
      axes: [axis, { ...axis, size: 70, values: (_plot, ticks) => ticks.map((tick) => `${(tick / 1000).toFixed(0)} kW`) }],
      series: [
        {},
        { label: "draw", points: { show: false }, stroke: colour("--draw"), width: 2 },
        { label: "cap band", points: { show: false }, stroke: colour("--band"), width: 1, dash: [6, 4] },
        { label: "rating", points: { show: false }, stroke: colour("--rating"), width: 1.5 },
        { label: "p50", points: { show: false }, stroke: colour("--fan"), width: 1 },
        { label: "p99", points: { show: false }, stroke: colour("--fan"), width: 1, dash: [3, 3] },
      ],
      bands: [{ series: [5, 4], fill: colour("--fan-fill") }],
    };
    return new uPlot(options, data, this.host);
  }
}
