// The few helpers that a page of plain elements needs.

type Child = Node | string;

export function element<T extends HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`no element ${id}`);
  return found as T;
}

export function make(tag: string, className = "", ...children: Child[]): HTMLElement {
  const made = document.createElement(tag);
  if (className !== "") made.className = className;
  made.append(...children);
  return made;
}

export function say(target: HTMLElement, text: string): void {
  if (target.textContent !== text) target.textContent = text;
}

export function fillRows(body: HTMLTableSectionElement, rows: Child[][], empty: string): void {
  const shown = rows.length > 0 ? rows : [[empty]];
  body.replaceChildren(
    ...shown.map((cells) => {
      const row = document.createElement("tr");
      for (const cell of cells) row.insertCell().append(cell);
      return row;
    }),
  );
}

export function bodyOf(table: string): HTMLTableSectionElement {
  const body = element<HTMLTableElement>(table).tBodies[0];
  if (body === undefined) throw new Error(`${table} has no body`);
  return body;
}
