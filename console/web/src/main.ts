// Wires the page. Everything is drawn from the state, never from the DOM.

import "./style.css";
import { renderCapacity, tellCapacityAges } from "./capacity";
import { connect, useToken } from "./connection";
import { bodyOf, element, say } from "./dom";
import { renderDomains } from "./domains";
import { renderFeed } from "./feed";
import { ForecastPanel } from "./forecast";
import { showFirstLine, tokenForm } from "./firstline";
import { clock } from "./format";
import { Freshness } from "./freshness";
import { renderGpuTable } from "./gputable";
import { GpuTypesPanel } from "./gputypes";
import { HeatMap, type Mode } from "./heat";
import { applyChange, type Capacity, type Decision, type Forecast, type Hello, type Placement, type Pulse, type ServiceForecasts, type Standing, State, type Tick, type Topology, type TopologyChange } from "./model";
import { renderPlacement } from "./pods";
import { PowerChart } from "./power";
import type { Message } from "./relay";
import { ServicesPanel } from "./services";
import { explain } from "./why";

const state = new State();
const freshness = new Freshness();
const chart = new PowerChart(element("power-past"), element("power-future"), element("forecast-note"));
const forecast = new ForecastPanel();
const services = new ServicesPanel();
const choice = element<HTMLSelectElement>("domain-choice");
const search = element<HTMLInputElement>("search");
const heat = new HeatMap(element<HTMLCanvasElement>("heat"), element("tip"), state, select);
let build = "";
let matches: number[] | null = null;
let placement: Placement | null = null;
let capacity: Capacity | null = null;

function select(gpu: number): void {
  const uuid = state.topology?.uuid[gpu];
  if (uuid !== undefined) void explain(uuid);
}

const handlers: Record<string, (body: never, agoMs: number) => void> = {
  hello(hello: Hello) {
    // A server of another release answers now: its page belongs to it.
    if (build !== "" && hello.build !== build) location.reload();
    build = hello.build;
    freshness.hello(hello);
  },
  topology(topology: Topology) {
    state.topology = topology;
    heat.arrange();
  },
  "topology-change"(change: TopologyChange) {
    if (state.topology === null) return;
    applyChange(state.topology, change);
    heat.arrange();
  },
  caps(caps: { limits: string; reasons: string }) {
    state.takeCaps(caps);
    say(element("heat-summary"), heat.summary());
  },
  temperature(base64: string) {
    state.takeTemperatures(base64);
  },
  decisions(decisions: Decision[]) {
    renderFeed(decisions);
  },
  domains(domains: Standing[]) {
    state.standing = domains;
  },
  forecasts(forecasts: Record<string, Forecast>) {
    state.forecasts = forecasts;
  },
  tick(tick: Tick) {
    state.takeTick(tick);
    say(element("label"), tick.label);
    say(element("clock"), `${clock(tick.wallTimeMs)} UTC`);
    element("clock").title = `tick ${tick.tick}, epoch ${tick.epoch}`;
    renderDomains(bodyOf("domains"), state.domains);
    fillChoice(state.domains.map((domain) => domain.name));
    const chosen = state.domains.find((domain) => domain.name === choice.value);
    if (chosen) {
      chart.add(tick.wallTimeMs, chosen, state.forecasts[chosen.name] ?? null);
      forecast.show(tick.wallTimeMs, chosen, state.forecasts[chosen.name] ?? null);
    }
    heat.draw();
    renderGpuTable(state, matches, (gpu) => heat.select(gpu));
    showPlacement();
    tellCapacityAges(state.tick?.wallTimeMs ?? 0);
    services.tellTime(tick.wallTimeMs);
    refresh();
  },
  placement(body: Placement) {
    placement = body;
    showPlacement();
  },
  capacity(body: Capacity) {
    capacity = body;
    showCapacity();
  },
  "service-forecasts"(body: ServiceForecasts) {
    services.take(body);
  },
  pulse(pulse: Pulse, agoMs: number) {
    freshness.take(pulse, agoMs);
    refresh();
  },
};

function showPlacement(): void {
  if (placement !== null) renderPlacement(placement, state.tick?.wallTimeMs ?? 0);
}

function showCapacity(): void {
  if (capacity !== null) renderCapacity(capacity, state.tick?.wallTimeMs ?? 0);
}

function refresh(): void {
  freshness.show();
  showFirstLine(state.tick?.overview ?? null, freshness.override());
}

connect((message: Message) => {
  if (message.kind === "event") handlers[message.name]?.(message.body as never, message.agoMs);
  else {
    freshness.link = message.link;
    element("denied").replaceChildren(...(message.link.state === "denied" ? [tokenForm(useToken)] : []));
    refresh();
  }
});
setInterval(refresh, 500);

function fillChoice(names: string[]): void {
  if (choice.options.length === names.length && [...choice.options].every((option, i) => option.value === names[i])) return;
  const wanted = wantedDomain(names);
  choice.replaceChildren(...names.map((name) => new Option(name, name, false, name === wanted)));
  void chart.choose(choice.value);
}

/** The domain of the address, as far as it names one; anybody may have typed it. */
function wantedDomain(names: string[]): string {
  try {
    const named = decodeURIComponent(location.hash.replace(/^#domain=/, ""));
    if (names.includes(named)) return named;
  } catch {
    // Not an encoded name: it means no domain.
  }
  return names.includes(choice.value) ? choice.value : (names[0] ?? "");
}

choice.addEventListener("change", () => {
  location.hash = `domain=${encodeURIComponent(choice.value)}`;
  void chart.choose(choice.value);
});
addEventListener("hashchange", () => {
  const wanted = wantedDomain([...choice.options].map((option) => option.value));
  if (wanted === "" || wanted === choice.value) return;
  choice.value = wanted;
  void chart.choose(wanted);
});
for (const radio of document.querySelectorAll<HTMLInputElement>('input[name="mode"]')) {
  radio.addEventListener("change", () => {
    heat.mode = radio.value as Mode;
    element("ramp-legend").dataset.mode = radio.value;
    heat.draw();
  });
}
search.addEventListener("input", () => {
  matches = heat.search(search.value);
  say(element("found"), matches === null ? "" : `${matches.length} found`);
  renderGpuTable(state, matches, (gpu) => heat.select(gpu));
});
search.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && matches?.[0] !== undefined) heat.select(matches[0]);
});
element("gpu-table-details").addEventListener("toggle", () => renderGpuTable(state, matches, (gpu) => heat.select(gpu)));
new GpuTypesPanel();
