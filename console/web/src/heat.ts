// Every GPU as one cell, grouped by rack, drawn in one pass over an image buffer.

import { FULL_LEVEL, type State, UNKNOWN_LEVEL } from "./model";

// One hue from light to dark (readable with any colour vision); unknown is grey.
const LOW = [226, 238, 247];
const HIGH = [8, 61, 119];
const GREY = [150, 150, 150];
const CAPPED = [235, 130, 20]; // a foot under the cell: told by place as well as by colour
const GAP = 6;

interface Layout {
  cell: number;
  columns: number;
  racks: { name: string; top: number; gpus: number[] }[];
  height: number;
}

export class HeatMap {
  private layout: Layout | null = null;
  private at = new Map<number, [number, number]>();
  private selected = -1;

  constructor(private readonly canvas: HTMLCanvasElement, private readonly state: State, private readonly onSelect: (gpu: number) => void) {
    canvas.addEventListener("click", (event) => this.pick(event.offsetX, event.offsetY));
    canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.arrange()).observe(canvas.parentElement ?? canvas);
  }

  arrange(): void {
    const topology = this.state.topology;
    if (topology === null) return;
    const width = Math.max(200, (this.canvas.parentElement?.clientWidth ?? 600) - 4);
    const cell = topology.uuid.length > 4000 ? 6 : topology.uuid.length > 1000 ? 9 : 14;
    const columns = Math.max(8, Math.floor((width - 80) / cell));
    const byRack = new Map<string, number[]>();
    topology.rack.forEach((rack, gpu) => (byRack.get(rack) ?? byRack.set(rack, []).get(rack)!).push(gpu));
    let top = 0;
    const racks = [...byRack.entries()].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true })).map(([name, gpus]) => {
      const rack = { name, top, gpus };
      top += Math.ceil(gpus.length / columns) * cell + GAP;
      return rack;
    });
    this.layout = { cell, columns, racks, height: Math.max(top, 20) };
    this.canvas.width = width;
    this.canvas.height = this.layout.height;
    this.at.clear();
    for (const rack of racks) rack.gpus.forEach((gpu, i) => this.at.set(gpu, [80 + (i % columns) * cell, rack.top + Math.floor(i / columns) * cell]));
    this.draw();
  }

  draw(): void {
    const context = this.canvas.getContext("2d");
    if (this.layout === null || context === null) return;
    const { cell } = this.layout;
    const image = context.createImageData(this.canvas.width, this.canvas.height);
    const pixels = new Uint32Array(image.data.buffer);
    for (const [gpu, [left, top]] of this.at) this.fill(pixels, left, top, cell, this.state.levels[gpu] ?? UNKNOWN_LEVEL, this.state.reasons[gpu] ?? 0);
    context.putImageData(image, 0, 0);
    context.fillStyle = getComputedStyle(this.canvas).color;
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "top";
    for (const rack of this.layout.racks) context.fillText(rack.name, 0, rack.top + 1, 76);
    const place = this.at.get(this.selected);
    if (place !== undefined) {
      context.strokeStyle = getComputedStyle(this.canvas).color;
      context.lineWidth = 2;
      context.strokeRect(place[0] - 1, place[1] - 1, cell + 1, cell + 1);
    }
  }

  private fill(pixels: Uint32Array, left: number, top: number, cell: number, level: number, reason: number): void {
    const share = Math.min(1, level / FULL_LEVEL);
    const colour = level === UNKNOWN_LEVEL ? pack(GREY) : pack(LOW.map((low, i) => low + ((HIGH[i] ?? 0) - low) * share));
    const capped = pack(CAPPED);
    const foot = reason === 0 ? cell : cell - 1 - Math.max(2, Math.floor(cell / 4));
    for (let y = 0; y < cell - 1; y++) {
      const line = (top + y) * this.canvas.width + left;
      pixels.fill(y >= foot ? capped : colour, line, line + cell - 1);
    }
  }

  private pick(x: number, y: number): void {
    if (this.layout === null) return;
    const { cell } = this.layout;
    for (const [gpu, [left, top]] of this.at) {
      if (x >= left && x < left + cell && y >= top && y < top + cell) return this.select(gpu);
    }
  }

  private key(event: KeyboardEvent): void {
    const columns = this.layout?.columns ?? 1;
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const last = (this.state.topology?.uuid.length ?? 1) - 1;
    this.select(Math.max(0, Math.min(last, this.selected + step)));
  }

  private select(gpu: number): void {
    this.selected = gpu;
    this.draw();
    this.onSelect(gpu);
  }
}

function pack(colour: number[]): number {
  const [red = 0, green = 0, blue = 0] = colour;
  return (255 << 24) | (Math.round(blue) << 16) | (Math.round(green) << 8) | Math.round(red);
}
