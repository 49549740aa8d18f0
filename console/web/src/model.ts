// What the event stream carries, and the state that the page keeps of it.

export interface Domain {
  name: string;
  parent: string | null;
  rating_watts: number;
  budget_watts: number;
  cap_band_watts: number;
  draw_watts: number;
  worst_watts: number;
  release_watts: number | null;
  survivable_watts: number | null;
  heat: number;
  band: string;
  enforcement: string;
  gpus: number;
  capped_gpus: number;
  would_be_capped_gpus?: number;
  forecast_p50_watts: number | null;
  forecast_p95_watts: number | null;
  forecast_p99_watts: number | null;
  forecast_state: string;
  forecast_reason: string;
  forecast_lead: Lead | null;
  forecast_account: Account | null;
  promisable: Room[];
}

/** Watts that may be promised beyond what is, to pods of a priority (null: all below those before), at a risk. */
export interface Room {
  least_priority: number | null;
  risk: number;
  watts: number;
}

/** How a forecast did so far, and what it was made of; null where it does not say. Unix seconds. */
export interface AccountFigures {
  windows: number | null;
  violations: number | null;
  violation_bound: number | null;
  live_windows: number | null;
  live_violations: number | null;
  live_violation_bound: number | null;
  reserve_ratio: number | null;
  tiers: { name: string; weight: number }[];
  model_version: string;
  fitted_until_seconds: number | null;
  calibration: Calibration | null;
  flags: string[];
}

export interface Calibration {
  live_windows: number;
  rehearsed_windows: number;
  updated_seconds: number | null;
}

export interface Account extends AccountFigures {
  issued_seconds: number;
  data_until_seconds: number;
  calibration: (Calibration & { offset_p99_watts: number | null }) | null;
}

/** What a domain may draw before a replica that is ordered now works. */
export interface Lead {
  workload: string;
  seconds: number;
  p99_watts: number | null;
}

/** What of a domain moves each second; the rest comes once. */
export type Moving = "draw_watts" | "worst_watts" | "survivable_watts" | "heat" | "band" | "capped_gpus" | "would_be_capped_gpus";
export type Standing = Omit<Domain, Moving>;

export interface Forecast {
  start_seconds: number;
  step_seconds: number;
  p50_watts: number[];
  p99_watts: number[];
}

/** A DemandForecast of a service; values in its unit, Unix seconds. */
export interface ServiceForecast {
  name: string;
  subject: string;
  unit: string;
  state: string;
  why: string;
  now: number | null;
  p50: number | null;
  p95: number | null;
  p99: number | null;
  method: string;
  issued_seconds: number | null;
  data_until_seconds: number | null;
  valid_until_seconds: number | null;
  account: AccountFigures & { calibration: (Calibration & { offset_p99: number | null }) | null };
  lead: { workload: string; seconds: number; p99?: number } | null;
  tokens: { mean: number; requestP99: number; p50: number; p95: number; p99: number } | null;
  replicas: { count: number; withinSeconds: number; shortRisk?: number; reason?: string; lowerings?: number; loweredAt?: string } | null;
}

export interface ServiceForecasts {
  forecasts: ServiceForecast[];
  more: number;
  hidden: number;
  states: Record<string, number>;
}

/** Quantiles of the steps of one of them, and its last day as the console has seen it. */
export interface Fan {
  start_seconds: number | null;
  step_seconds: number | null;
  levels: number[];
  values: number[][];
  past: { start_seconds: number[]; values: (number | null)[] };
}

export interface Decision {
  id: string;
  timeMs: number;
  sinceMs: number;
  count: number;
  domain: string;
  words: string;
  tone: string;
  message: string;
}

export interface Topology {
  uuid: string[];
  node: string[];
  rack: string[];
  model: string[];
  requestWatts: number[];
  priority: number[];
  pod: string[];
}

export interface TopologyChange {
  start: number;
  remove: number;
  rows: Partial<Record<keyof Topology, (string | number)[]>>;
  set: Partial<Record<keyof Topology, [number, string | number][]>>;
}

export interface Overview {
  state: string;
  why: string;
  domain: string;
  headroomWatts: number | null;
  headroomShare: number | null;
  capped: Record<string, number>;
  cappedGpus: number;
  gpus: number;
  enforcement: string;
  limit: string;
}

export interface Tick {
  tick: number;
  wallTimeMs: number;
  epoch: number;
  label: string;
  overview: Overview;
  domains: { [K in Moving]: Domain[K][] };
  draws: string;
}

export interface Age {
  seconds: number | null;
  cause: string;
}

export interface Pulse {
  ages: Record<string, Age>;
  state: string;
  why: string;
}

export interface PodGroup {
  reason: string;
  words: string;
  remedy: string;
  domains: string[];
  count: number;
  gpus: number;
  priority: number;
  oldestMs: number;
  message: string;
  pods: { name: string; gpus: number; priorityClass: string; priority: number; createdMs: number; message: string }[];
}

export interface PlanRow {
  name: string;
  pods: number;
  pending: number;
  gap: number | null;
  headroom: { domain: string; limitWatts: number; countedWatts: number; freeWatts: number } | null;
  method: string;
  state: string;
}

export interface Placement {
  placed: number;
  pending: number;
  hidden: number;
  groups: PodGroup[];
  plans: PlanRow[];
}

export interface PlannedReplicas {
  gpuModel: string;
  capWatts: number;
  gpus: number;
  replicas: number;
  offer: string;
  serves: string[];
}

export interface CapacityPlanRow {
  name: string;
  ready: boolean;
  reason: string;
  message: string;
  solvedMs: number;
  isOfThisSpec: boolean;
  ratesFrom: string;
  requestsPerSecond: number;
  buckets: number;
  budgetWatts: number | null;
  goal: string;
  replicas: PlannedReplicas[];
  constraintCosts: { constraint: string; gain: number; leastGain: number }[];
  dollarsPerHour: number | null;
  costs: { rent: number; energy: number; carbon: number; start: number } | null;
  powerWatts: number | null;
  p99Watts: number | null;
  operationalGramsPerHour: number | null;
  embodiedGramsPerHour: number | null;
  servedFraction: number | null;
  savedFraction: number | null;
  gap: number | null;
  countedRates: { leastShare: number; mostShare: number; timeFactor?: number; confidence?: number } | null;
}

export interface Capacity {
  plans: CapacityPlanRow[];
  more: number;
  hidden: number;
}

export interface Hello {
  build: string;
  greySeconds: number;
  redSeconds: number;
}

/** How the page reaches the server. */
export interface Link {
  state: "connecting" | "open" | "lost" | "denied";
  cause: string;
}

/** Reason of a GPU that would be capped, were it not for DryRun (controller/cap_reason.py). */
const DRY_RUN = 9;

export const UNKNOWN_LEVEL = 255;
export const FULL_LEVEL = 250;

export class State {
  topology: Topology | null = null;
  tick: Tick | null = null;
  forecasts: Record<string, Forecast> = {};
  standing: Standing[] = [];
  domains: Domain[] = [];
  draws = new Uint8Array();
  limits = new Uint8Array();
  reasons = new Uint8Array();
  temperatures = new Uint8Array();

  takeTick(tick: Tick): void {
    this.tick = tick;
    this.draws = bytes(tick.draws);
    const moving = Object.entries(tick.domains) as [Moving, Domain[Moving][]][];
    this.domains = this.standing.map((domain, i) => ({ ...domain, ...Object.fromEntries(moving.map(([name, values]) => [name, values[i]])) }) as Domain);
  }

  takeCaps(caps: { limits: string; reasons: string }): void {
    this.limits = bytes(caps.limits);
    this.reasons = bytes(caps.reasons);
  }

  /** Whether something holds the GPU below its request. */
  isCapped(gpu: number): boolean {
    const reason = this.reasons[gpu] ?? 0;
    return reason !== 0 && reason !== DRY_RUN;
  }

  /** Whether caps would, were it not for DryRun: nothing holds it. */
  wouldBeCapped(gpu: number): boolean {
    return this.reasons[gpu] === DRY_RUN;
  }

  takeTemperatures(base64: string): void {
    this.temperatures = bytes(base64);
  }
}

/** Brings the columns up to date in place. */
export function applyChange(topology: Topology, change: TopologyChange): void {
  for (const name of Object.keys(topology) as (keyof Topology)[]) {
    const column = topology[name] as (string | number)[];
    column.splice(change.start, change.remove, ...(change.rows[name] ?? []));
    for (const [row, value] of change.set[name] ?? []) column[row] = value;
  }
}

function bytes(base64: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}
