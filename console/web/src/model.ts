// What the event stream carries, and the state that the page keeps of it.

export interface Domain {
  name: string;
  parent: string | null;
  rating_watts: number;
  budget_watts: number;
  cap_band_watts: number;
  draw_watts: number;
  worst_watts: number;
  heat: number;
  band: string;
  enforcement: string;
  gpus: number;
  capped_gpus: number;
  forecast_p50_watts: number | null;
  forecast_p95_watts: number | null;
  forecast_p99_watts: number | null;
  forecast_method: string;
}

export interface Decision {
  id: string;
  wall_time_ns: number;
  epoch: number;
  domain: string;
  kind: string;
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

export interface Tick {
  tick: number;
  wallTimeMs: number;
  epoch: number;
  leading: boolean;
  label: string;
  simulated: boolean;
  domains: Domain[];
  levels: string;
  reasons?: string;
  decisions?: Decision[];
}

export interface PodRow {
  namespace: string;
  name: string;
  gpus: number;
  priorityClass: string;
  node: string;
  phase: string;
  gated: boolean;
  reason: string;
  message: string;
}

export interface PlanRow {
  name: string;
  pods: number;
  pending: number;
  moves: number;
  gap: number | null;
  method: string;
  state: string;
}

export interface Placement {
  pods: PodRow[];
  pending: PodRow[];
  plans: PlanRow[];
}

export const UNKNOWN_LEVEL = 255;
export const FULL_LEVEL = 250;

export class State {
  topology: Topology | null = null;
  tick: Tick | null = null;
  levels = new Uint8Array();
  reasons = new Uint8Array();
  decisions: Decision[] = [];

  takeTopology(topology: Topology): void {
    this.topology = topology;
    this.reasons = new Uint8Array(topology.uuid.length);
  }

  takeTick(tick: Tick): void {
    this.tick = tick;
    this.levels = bytes(tick.levels);
    if (tick.reasons !== undefined) this.reasons = bytes(tick.reasons);
    if (tick.decisions !== undefined) this.decisions = tick.decisions;
  }
}

function bytes(base64: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

export function watts(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  return value >= 1e6 ? `${(value / 1e6).toFixed(2)} MW` : value >= 1e4 ? `${(value / 1e3).toFixed(1)} kW` : `${value.toFixed(0)} W`;
}
