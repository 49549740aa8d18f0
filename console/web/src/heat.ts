// Every GPU as one cell, eight of a server in a row, servers by rack. What a colour says is said by
// form too: stripes for a cap, a hollow cell for an unknown value.

import { count } from "./format";
import { FULL_LEVEL, type State, UNKNOWN_LEVEL } from "./model";

export type Mode = "draw" | "cap" | "temperature" | "pod";

const LABEL_WIDTH = 76;
const COLDEST = 30;
const HOTTEST = 90;

interface Place {
  gpu: number;
  x: number;
  y: number;
}

export class HeatMap {
  mode: Mode = "draw";
  private cell = 14;
  private places: Place[] = [];
  private labels: { name: string; y: number }[] = [];
  private height = 20;
  private selected = -1;
  private matches: Set<number> | null = null;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly tip: HTMLElement,
    private readonly state: State,
    private readonly onSelect: (gpu: number) => void,
  ) {
    canvas.addEventListener("click", (event) => this.select(this.at(event)));
    canvas.addEventListener("mousemove", (event) => this.hover(event));
    canvas.addEventListener("mouseleave", () => (this.tip.hidden = true));
    canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.arrange()).observe(canvas.parentElement ?? canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  arrange(): void {
    const topology = this.state.topology;
    if (topology === null) return;
    const width = Math.max(240, this.canvas.parentElement?.clientWidth ?? 600);
    const many = topology.uuid.length;
    this.cell = many > 4000 ? 6 : many > 1200 ? 9 : many > 600 || width < 500 ? 12 : 18;
    const racks = new Map<string, Map<string, number[]>>();
    topology.uuid.forEach((_, gpu) => {
      const rack = mapIn(racks, topology.rack[gpu] ?? "", () => new Map<string, number[]>());
      mapIn(rack, topology.node[gpu] ?? "", () => []).push(gpu);
    });
    this.places = [];
    this.labels = [];
    const gap = Math.max(2, Math.floor(this.cell / 3));
    let y = 2;
    for (const [name, nodes] of [...racks].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }))) {
      let x = LABEL_WIDTH;
      this.labels.push({ name, y });
      for (const gpus of nodes.values()) {
        const block = gpus.length * this.cell;
        if (x > LABEL_WIDTH && x + block > width) {
          x = LABEL_WIDTH;
          y += this.cell + 1;
        }
        gpus.forEach((gpu, i) => this.places.push({ gpu, x: x + i * this.cell, y }));
        x += block + gap;
      }
      y += this.cell + Math.max(6, gap * 2);
    }
    this.height = y;
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${this.height}px`;
    this.draw();
  }

  draw(): void {
    const context = this.canvas.getContext("2d");
    if (context === null) return;
    const ratio = devicePixelRatio || 1;
    const ink = token("--ink");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const ground = token("--panel");
    const low = rgb(token("--ramp-low"));
    const high = rgb(token("--ramp-high"));
    const ramp = Array.from({ length: FULL_LEVEL + 1 }, (_, i) => mix(low, high, i / FULL_LEVEL));
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const size = this.cell - 1;
    for (const { gpu, x, y } of this.places) {
      context.globalAlpha = this.matches === null || this.matches.has(gpu) ? 1 : 0.18;
      const fill = this.colourOf(gpu, ramp, dark);
      if (fill === null) {
        context.strokeStyle = token("--muted");
        context.lineWidth = 1;
        context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
      } else {
        context.fillStyle = fill;
        context.fillRect(x, y, size, size);
      }
      if (this.state.isCapped(gpu)) hatch(context, x, y, size, fill === null ? ink : ground);
    }
    context.globalAlpha = 1;
    context.fillStyle = ink;
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "top";
    for (const { name, y } of this.labels) context.fillText(name, 0, y, LABEL_WIDTH - 8);
    const place = this.places.find(({ gpu }) => gpu === this.selected);
    if (place !== undefined) {
      context.strokeStyle = ink;
      context.lineWidth = 2;
      context.strokeRect(place.x - 1.5, place.y - 1.5, size + 3, size + 3);
    }
  }

  /** The GPUs whose server, type, pod or UUID contains the text; null for an empty text. */
  search(text: string): number[] | null {
    const wanted = text.trim().toLowerCase();
    const topology = this.state.topology;
    if (wanted === "" || topology === null) this.matches = null;
    else {
      const columns = [topology.node, topology.pod, topology.uuid, topology.model, topology.rack];
      this.matches = new Set(topology.uuid.flatMap((_, gpu) => (columns.some((column) => (column[gpu] ?? "").toLowerCase().includes(wanted)) ? [gpu] : [])));
    }
    this.draw();
    return this.matches === null ? null : [...this.matches];
  }

  select(gpu: number): void {
    if (gpu < 0) return;
    this.selected = gpu;
    this.draw();
    this.onSelect(gpu);
  }

  describe(gpu: number): string {
    const topology = this.state.topology;
    if (topology === null) return "";
    const request = topology.requestWatts[gpu] ?? 0;
    const watts = (level: number | undefined): string => (level === undefined || level === UNKNOWN_LEVEL ? "unknown" : `${Math.round((request * level) / FULL_LEVEL)} W`);
    const degrees = this.state.temperatures[gpu];
    return [
      `${topology.node[gpu]} · ${topology.model[gpu]}`,
      topology.pod[gpu] || "no pod",
      `draw ${watts(this.state.draws[gpu])}, limit ${watts(this.state.limits[gpu])} of ${Math.round(request)} W`,
      degrees === undefined || degrees === UNKNOWN_LEVEL ? "" : `${degrees} °C`,
      this.state.isCapped(gpu) ? "capped: click to ask why" : this.state.wouldBeCapped(gpu) ? "would be capped, but for dry run: click to ask why" : "",
    ].filter((line) => line !== "").join("\n");
  }

  summary(): string {
    const gpus = [...this.state.reasons.keys()];
    const wouldBe = gpus.filter((gpu) => this.state.wouldBeCapped(gpu)).length;
    return `${gpus.filter((gpu) => this.state.isCapped(gpu)).length} of ${count(gpus.length, "GPU")} capped${wouldBe > 0 ? `, ${wouldBe} would be` : ""}`;
  }

  private colourOf(gpu: number, ramp: string[], dark: boolean): string | null {
    const level = this.mode === "cap" ? this.state.limits[gpu] : this.state.draws[gpu];
    if (this.mode === "pod") {
      const pod = this.state.topology?.pod[gpu] ?? "";
      return pod === "" ? null : `hsl(${hash(pod) % 360} 45% ${dark ? 66 : 36}%)`;
    }
    if (this.mode === "temperature") {
      const degrees = this.state.temperatures[gpu] ?? UNKNOWN_LEVEL;
      if (degrees === UNKNOWN_LEVEL) return null;
      const share = Math.max(0, Math.min(1, (degrees - COLDEST) / (HOTTEST - COLDEST)));
      return ramp[Math.round(share * FULL_LEVEL)] ?? null;
    }
    return level === undefined || level === UNKNOWN_LEVEL ? null : (ramp[Math.min(level, FULL_LEVEL)] ?? null);
  }

  private at(event: MouseEvent): number {
    const found = this.places.find(({ x, y }) => event.offsetX >= x && event.offsetX < x + this.cell && event.offsetY >= y && event.offsetY < y + this.cell);
    return found?.gpu ?? -1;
  }

  private hover(event: MouseEvent): void {
    const gpu = this.at(event);
    this.tip.hidden = gpu < 0;
    if (gpu < 0) return;
    this.tip.textContent = this.describe(gpu);
    const left = Math.min(event.offsetX + 14, this.canvas.clientWidth - this.tip.offsetWidth);
    this.tip.style.translate = `${Math.max(0, left)}px ${event.offsetY + 18}px`;
  }

  private key(event: KeyboardEvent): void {
    const at = this.places.findIndex(({ gpu }) => gpu === this.selected);
    const here = this.places[at];
    const beside = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    let next: Place | undefined;
    if (beside !== undefined) next = this.places[Math.max(0, Math.min(this.places.length - 1, at + beside))];
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const sign = event.key === "ArrowDown" ? 1 : -1;
      const rows = this.places.filter(({ y }) => here === undefined || (y - here.y) * sign > 0);
      const row = sign > 0 ? Math.min(...rows.map(({ y }) => y)) : Math.max(...rows.map(({ y }) => y));
      const near = rows.filter(({ y }) => y === row);
      next = near.sort((a, b) => Math.abs(a.x - (here?.x ?? 0)) - Math.abs(b.x - (here?.x ?? 0)))[0];
    } else return;
    event.preventDefault();
    if (next !== undefined) this.select(next.gpu);
  }
}

/** Stripes in the ground's colour: what stands out from the ground stands out from them. */
function hatch(context: CanvasRenderingContext2D, x: number, y: number, size: number, colour: string): void {
  context.save();
  context.beginPath();
  context.rect(x, y, size, size);
  context.clip();
  context.strokeStyle = colour;
  context.lineWidth = size < 8 ? 1 : 1.5;
  context.beginPath();
  const step = size < 8 ? 4 : 5;
  for (let offset = -size; offset < size; offset += step) {
    context.moveTo(x + offset, y + size);
    context.lineTo(x + offset + size, y);
  }
  context.stroke();
  context.restore();
}

function mapIn<K, V>(map: Map<K, V>, key: K, create: () => V): V {
  const found = map.get(key);
  if (found !== undefined) return found;
  const made = create();
  map.set(key, made);
  return made;
}

function hash(text: string): number {
  let value = 0;
  for (const character of text) value = (value * 31 + character.charCodeAt(0)) >>> 0;
  return Math.imul(value, 2654435761) >>> 0;
}

function token(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function rgb(hex: string): number[] {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function mix(low: number[], high: number[], share: number): string {
  return `rgb(${low.map((value, i) => Math.round(value + ((high[i] ?? 0) - value) * share)).join(" ")})`;
}
