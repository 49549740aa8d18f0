// One forecast of a service: its last day, the quantiles of its steps, and what stands behind them.

import type uPlot from "uplot";
import { accountFacts, type Fact, offsetWords } from "./account";
import { getJson } from "./connection";
import { element, say } from "./dom";
import { FactList } from "./factlist";
import { figure, percent, quantity, span } from "./format";
import { chartWidth, HEIGHT, hourChart } from "./hourchart";
import type { Fan, ServiceForecast } from "./model";
import { colour, look } from "./power";

type Column = (number | null)[];

const BIN_SECONDS = 600;

/** What docs/console.md explains. */
export const STATE_WORDS: Record<string, string> = {
  NotReady: "not ready",
  Expired: "too old",
  Contradicted: "contradicted",
  Missed: "missed too often",
  Kept: "history is away",
  Fallback: "fall-back",
  Flagged: "in use",
  Forecast: "in use",
};

export class ServiceFan {
  private plot: uPlot | null = null;
  private row: ServiceForecast | null = null;
  private fan: Fan | null = null;
  private now = 0;
  private asked = "";
  private drawn = "";
  private readonly facts = new FactList(element("service-facts"));

  constructor() {
    new ResizeObserver(() => this.plot?.setSize({ width: chartWidth("service-chart"), height: HEIGHT })).observe(element("service-chart"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.drawn = "";
      this.draw();
    });
  }

  show(row: ServiceForecast, now: number): void {
    if (row.name !== this.row?.name) this.fan = null;
    this.row = row;
    this.now = now;
    const issue = JSON.stringify([row.name, row.issued_seconds, row.data_until_seconds]);
    if (issue !== this.asked) void this.ask(row.name, issue);
    say(element("service-name"), row.subject === "" || row.name.endsWith(`/${row.subject}`) ? row.name : `${row.name}: ${row.subject}`);
    const chip = element("service-state");
    chip.dataset.state = row.state;
    say(chip, STATE_WORDS[row.state] ?? row.state);
    this.tellTime(now);
  }

  tellTime(now: number): void {
    if (this.row === null) return;
    this.now = now;
    this.facts.show(factsOf(this.row, now));
    this.draw();
  }

  private async ask(name: string, issue: string): Promise<void> {
    this.asked = issue;
    const [namespace, own] = name.split("/");
    const fan = await getJson<Fan>(`api/v1/forecasts/${encodeURIComponent(namespace ?? "")}/${encodeURIComponent(own ?? "")}`);
    if (this.asked !== issue) return;
    if (fan === null) this.asked = ""; // asked again when the list next changes, or another is chosen
    else this.fan = fan;
    this.draw();
  }

  private draw(): void {
    const { row, fan } = this;
    if (row === null) return;
    // Hours move slowly: a new picture each half minute, or when what it shows has changed.
    const key = JSON.stringify([Math.floor(this.now / 30), row.name, row.state, row.now, row.p99, fan?.start_seconds, fan?.levels, fan?.past.start_seconds.length]);
    if (key === this.drawn) return;
    this.drawn = key;
    const stands = row.state !== "NotReady" && row.state !== "Expired";
    const levels = stands && fan !== null ? fan.levels : [];
    const data = columns(row, fan, levels, stands, this.now);
    this.plot?.destroy();
    this.plot = this.create(data, levels, row.unit);
    const seen = data.slice(1).flatMap((column) => [...(column as Column)]).filter((v): v is number => v !== null);
    if (seen.length > 0) this.plot.setScale("y", { min: Math.max(0, Math.min(...seen) * 0.92), max: Math.max(...seen) * 1.04 || 1 });
    say(element("service-levels"), ["each step", levels.length === 0 ? "" : `, ${[...new Set([levels[0]!, levels.at(-1)!])].map((level) => `p${percentile(level)}`).join(" to ")}`].join(""));
    say(element("service-caption"), `last day and next hours, ${row.unit === "watts" || row.unit === "W" ? "power" : row.unit || "in its own unit"}`);
    const peak = stands ? `peak of the coming window p50 ${quantity(row.p50, row.unit)}, p99 ${quantity(row.p99, row.unit)}` : `no forecast to plan with: ${row.why}`;
    element("service-chart").setAttribute("aria-label", `${row.name}: newest value ${quantity(row.now, row.unit)}, ${peak}`);
  }

  private create(data: uPlot.AlignedData, levels: number[], unit: string): uPlot {
    const { y, line } = look();
    const middle = medianOf(levels);
    // Series of uPlot: hours, what came, the levels, the peak.
    const place = (level: number): number => 2 + level;
    const words = (tick: number): string => (unit === "watts" || unit === "W" ? quantity(tick, unit).replace(".0 ", " ") : figure(tick));
    const lines = {
      series: [{}, { ...line("--draw", 2), points: { show: true, size: 4, fill: colour("--draw") } }, ...levels.map((_level, i) => line("--fan", i === middle ? 1.5 : 0.75)), line("--ink", 1.5, [4, 3])],
      bands: levels.flatMap((_level, i) => (i === middle ? [] : [{ series: [place(Math.max(i, middle)), place(Math.min(i, middle))] as [number, number], fill: colour("--fan-fill") }])),
    };
    return hourChart("service-chart", { ...y, values: (_plot, ticks) => ticks.map(words) }, lines, data);
  }
}

/** Hours from now; what came, each level of the steps, the p99 of the peak. */
function columns(row: ServiceForecast, fan: Fan | null, levels: number[], stands: boolean, now: number): uPlot.AlignedData {
  // The newest bin may not be over yet: its value stands where the data end.
  const ended = (row.data_until_seconds ?? now) - now;
  const bins = (fan?.past.start_seconds ?? []).map((start, i) => [Math.min(start + BIN_SECONDS / 2 - now, ended) / 3600, fan?.past.values[i] ?? null] as const).filter(([hour]) => hour >= -24);
  const begin = fan?.start_seconds ?? now;
  const step = fan?.step_seconds ?? BIN_SECONDS;
  const steps = levels.length > 0 ? (fan?.values[0] ?? []).map((_value, i) => ({ hour: (begin + (i + 0.5) * step - now) / 3600, i })).filter(({ hour }) => hour > -0.5 * (step / 3600)) : [0.01, 6].map((hour) => ({ hour, i: -1 }));
  const blank: Column = bins.map(() => null);
  return [
    [...bins.map(([hour]) => hour), ...steps.map(({ hour }) => hour)],
    [...bins.map(([, value]) => value), ...steps.map(() => null)],
    ...levels.map((_level, at) => [...blank, ...steps.map(({ i }) => fan?.values[at]?.[i] ?? null)]),
    [...blank, ...steps.map(() => (stands ? row.p99 : null))],
  ] as uPlot.AlignedData;
}

/** Place of the level that is nearest to the median. */
function medianOf(levels: number[]): number {
  return levels.reduce((best, level, i) => (Math.abs(level - 0.5) < Math.abs((levels[best] ?? 9) - 0.5) ? i : best), 0);
}

function percentile(level: number): string {
  return Number((100 * level).toPrecision(4)).toString();
}

function factsOf(row: ServiceForecast, now: number): Fact[] {
  const list: Fact[] = [];
  const told = (value: number | null | undefined): string => quantity(value, row.unit);
  if (row.why !== "") list.push(["Why", [row.why]]);
  if (row.state !== "NotReady" && row.state !== "Expired") {
    list.push(["Peak expected", [`p50 ${told(row.p50)}, p95 ${told(row.p95)}, p99 ${told(row.p99)}; now ${told(row.now)}`]]);
    list.push(...needs(row, now, told));
  }
  return [...list, ...accountFacts(row.account, now, row.data_until_seconds, offsetWords(row.account.calibration?.offset_p99, told))];
}

function needs(row: ServiceForecast, now: number, told: (value: number | null | undefined) => string): Fact[] {
  const list: Fact[] = [];
  const { replicas, tokens, lead } = row;
  if (replicas !== null) {
    const risk = replicas.shortRisk === undefined ? "" : `; short in ${percent(replicas.shortRisk)} of windows`;
    const since = replicas.loweredAt === undefined ? NaN : Date.parse(replicas.loweredAt) / 1000;
    const lowered = Number.isNaN(since) ? "" : `; lowered ${span(Math.max(0, now - since))} ago, ${replicas.lowerings ?? 0} times in that hour`;
    list.push(["Replicas", [`${figure(replicas.count)} now: ${replicas.reason ?? "no reason is told"}${risk}${lowered}`]]);
  }
  if (tokens !== null) list.push(["Tokens", [`${figure(tokens.mean)} a request, one in 100 over ${figure(tokens.requestP99)}; highest step p50 ${figure(tokens.p50)}, p95 ${figure(tokens.p95)}, p99 ${figure(tokens.p99)} tokens/s`]]);
  if (lead !== null) list.push(["New replica", [`of ${lead.workload} works within ${Math.round(lead.seconds)} s${lead.p99 === undefined ? "" : `, until then p99 ${told(lead.p99)}`}`]]);
  return list;
}
