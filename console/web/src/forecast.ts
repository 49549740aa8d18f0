// What is expected of one domain, and how far that can be believed.

import type uPlot from "uplot";
import { accountFacts, type Fact, offsetWords } from "./account";
import { getJson } from "./connection";
import { element, say } from "./dom";
import { FactList } from "./factlist";
import { kilowatts } from "./format";
import { chartWidth, HEIGHT, hourChart } from "./hourchart";
import type { Domain, Forecast } from "./model";
import { colour, look } from "./power";

interface Day {
  startSeconds: number[];
  drawWatts: (number | null)[];
}

type Column = (number | null)[];

const BIN_SECONDS = 600;
const DAY_EVERY_MS = 60_000; // a bin is ten minutes: older by a minute changes nothing that can be seen
const WORDS: Record<string, string> = { Forecast: "in use", Fallback: "last day's peak instead", Contradicted: "contradicted", NoForecast: "none" };
export class ForecastPanel {
  private plot: uPlot | null = null;
  private name = "";
  private day: Day = { startSeconds: [], drawWatts: [] };
  private askedMs = -Infinity;
  private drawn = "";
  private readonly facts = new FactList(element("forecast-facts"));
  private latest: [number, Domain, Forecast | null] | null = null;

  constructor() {
    new ResizeObserver(() => this.plot?.setSize({ width: chartWidth("forecast-chart"), height: HEIGHT })).observe(element("forecast-chart"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.plot?.destroy();
      this.plot = null;
      this.drawn = "";
      if (this.latest !== null) this.show(...this.latest);
    });
  }

  show(timeMs: number, domain: Domain, forecast: Forecast | null): void {
    this.latest = [timeMs, domain, forecast];
    if (domain.name !== this.name) {
      this.name = domain.name;
      this.day = { startSeconds: [], drawWatts: [] };
      this.askedMs = -Infinity;
    }
    if (performance.now() - this.askedMs > DAY_EVERY_MS) void this.ask(domain.name);
    say(element("forecast-domain"), domain.name);
    const chip = element("forecast-state");
    // Minutes before measured draw takes its authority away, a reader may doubt it already.
    const exceeded = domain.forecast_state === "Forecast" && domain.forecast_p99_watts !== null && domain.draw_watts > domain.forecast_p99_watts;
    chip.dataset.state = exceeded ? "Exceeded" : domain.forecast_state;
    say(chip, exceeded ? "in use, exceeded now" : (WORDS[domain.forecast_state] ?? domain.forecast_state));
    this.facts.show(facts(domain, timeMs / 1000));
    this.draw(timeMs / 1000, domain, forecast);
  }

  private async ask(name: string): Promise<void> {
    this.askedMs = performance.now();
    const day = await getJson<Day>(`api/v1/day/${encodeURIComponent(name)}`);
    if (day === null || this.name !== name) return;
    this.day = day;
    if (this.latest !== null) this.show(...this.latest);
  }

  private draw(now: number, domain: Domain, forecast: Forecast | null): void {
    const trusted = domain.forecast_state === "Forecast" ? forecast : null;
    // Hours move slowly: a new picture each half minute, or when what it shows has changed.
    const key = JSON.stringify([Math.floor(now / 30), Math.round(domain.draw_watts / domain.rating_watts * 100), this.day.startSeconds.at(-1), this.day.startSeconds.length, domain.name, domain.forecast_state, domain.forecast_p99_watts, domain.cap_band_watts, domain.rating_watts, trusted?.start_seconds]);
    if (key === this.drawn) return;
    this.drawn = key;
    const data = columns(this.day, now, domain, trusted);
    if (this.plot === null) this.plot = this.create(data);
    else this.plot.setData(data);
    const seen = data.slice(1).flatMap((column) => [...(column as Column)]).filter((v): v is number => v !== null);
    this.plot.setScale("y", { min: Math.max(0, Math.min(...seen) * 0.92), max: Math.max(...seen) * 1.04 });
    const past = this.day.drawWatts.filter((v): v is number => v !== null);
    const before = past.length > 0 ? `draw before ${kilowatts(Math.min(...past))} to ${kilowatts(Math.max(...past))}, ` : "";
    element("forecast-chart").setAttribute("aria-label", `${domain.name}: ${before}peak of the coming hours p50 ${kilowatts(domain.forecast_p50_watts)}, p99 ${kilowatts(domain.forecast_p99_watts)}, of ${kilowatts(domain.rating_watts)}`);
  }

  private create(data: uPlot.AlignedData): uPlot {
    const { y, line } = look();
    const series = [{}, line("--draw", 2), line("--fan", 1.5), line("--fan", 1), line("--ink", 1.5, [4, 3]), line("--band", 1.5, [6, 4]), line("--rating", 1.5)];
    return hourChart("forecast-chart", y, { series, bands: [{ series: [3, 2], fill: colour("--fan-fill") }] }, data);
  }
}

/** Hours from now; draw, p50 and p99 of the steps, p99 of the peak, cap band, rating. */
function columns(day: Day, now: number, domain: Domain, forecast: Forecast | null): uPlot.AlignedData {
  const bins = day.startSeconds.map((start, i) => [(start + BIN_SECONDS / 2 - now) / 3600, day.drawWatts[i] ?? null] as const).filter(([hour]) => hour < 0 && hour >= -24);
  const past = [...bins, [0, domain.draw_watts] as const];
  const steps = forecast === null ? [0.01, 6].map((hour) => [hour, null, null] as const) : forecast.p50_watts.map((p50, i) => [(forecast.start_seconds + (i + 0.5) * forecast.step_seconds - now) / 3600, p50, forecast.p99_watts[i] ?? null] as const).filter(([hour]) => hour > 0);
  // Contradicted or unknown: no line that somebody could plan with.
  const peak = domain.forecast_state === "Forecast" || domain.forecast_state === "Fallback" ? domain.forecast_p99_watts : null;
  const blank: Column = past.map(() => null);
  const all = (watts: number): Column => [...past, ...steps].map(() => watts);
  return [
    [...past.map(([hour]) => hour), ...steps.map(([hour]) => hour)],
    [...past.map(([, watts]) => watts), ...steps.map(() => null)],
    [...blank, ...steps.map(([, p50]) => p50)],
    [...blank, ...steps.map(([, , p99]) => p99)],
    [...blank, ...steps.map(() => peak)],
    all(domain.cap_band_watts),
    all(domain.rating_watts),
  ] as uPlot.AlignedData;
}

function facts(domain: Domain, now: number): Fact[] {
  const list: Fact[] = [];
  const contradicted = domain.forecast_state === "Contradicted";
  const stands = contradicted || domain.forecast_state === "NoForecast" ? " stand in" : "";
  list.push(["Peak expected", [`p50 ${kilowatts(domain.forecast_p50_watts)}, p95 ${kilowatts(domain.forecast_p95_watts)}, p99 ${kilowatts(domain.forecast_p99_watts)}${stands}`]]);
  if (domain.forecast_reason !== "" && domain.forecast_state !== "Forecast") list.push(["Why", [domain.forecast_reason]]);
  const account = domain.forecast_account;
  if (account === null || account === undefined) return list;
  return [...list, ...accountFacts(account, now, account.data_until_seconds, offsetWords(account.calibration?.offset_p99_watts, kilowatts))];
}
