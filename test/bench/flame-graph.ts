/**
 * Draws a flame graph as one HTML file without scripts. Callers are above their callees, the width is the share, and the title
 * of a frame shows its measurements.
 */
import type { CallTree } from './call-tree.ts';

const WIDTH = 1600;
const ROW = 17;
/** The minimum width of a frame. Narrower ones are omitted together with their callees. */
const NARROWEST = 0.6;
const CHARACTER = 6.6;

export interface FlameGraph {
  readonly title: string;
  readonly tree: CallTree;
  /** The measurement of a frame, with its unit. */
  readonly format: (amount: number) => string;
  /** Shortens the file of a frame. */
  readonly place: (url: string, line: number) => string;
}

const ENTITIES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };

const escaped = (text: string): string => text.replace(/[&<>"]/g, (character) => ENTITIES[character] ?? '');

/** Returns the hue of a file, which all its functions have. */
function hueOf(url: string): number {
  let hash = 0;
  for (const character of url) hash = (hash * 31 + (character.codePointAt(0) ?? 0)) % 360;
  return hash;
}

/** Returns the page. `format` writes an amount with its unit, and `place` a URL with a line as a position in the source. */
export function flameGraphHtml({ title, tree, format, place }: FlameGraph): string {
  const scale = WIDTH / Math.max(tree.total, 1);
  const frames: string[] = [];
  let depth = 0;
  const draw = (node: CallTree, left: number, row: number): void => {
    const width = node.total * scale;
    if (width < NARROWEST) return;
    depth = Math.max(depth, row + 1);
    const { functionName, url, lineNumber } = node.frame;
    const name = functionName === '' ? '(anonymous)' : functionName;
    const share = ((100 * node.total) / Math.max(tree.total, 1)).toFixed(1);
    const about = `${name} ${place(url, lineNumber + 1)}: ${format(node.total)}, ${share} %; by itself ${format(node.self)}`;
    const text = name.slice(0, Math.floor((width - 4) / CHARACTER));
    frames.push(
      `<g><title>${escaped(about)}</title><rect x="${left.toFixed(1)}" y="${row * ROW}" width="${width.toFixed(1)}" height="${ROW - 1}" ` +
        `fill="hsl(${hueOf(url)} 60% 75%)"/><text x="${(left + 3).toFixed(1)}" y="${row * ROW + 12}">${escaped(text)}</text></g>`,
    );
    let at = left;
    for (const child of [...node.children.values()].toSorted((a, b) => b.total - a.total)) {
      draw(child, at, row + 1);
      at += child.total * scale;
    }
  };
  draw(tree, 0, 0);
  return `<!doctype html><meta charset="utf-8"><title>${escaped(title)}</title>
<style>body{font:14px sans-serif;margin:12px}text{font:11px monospace;pointer-events:none}rect:hover{stroke:#000}</style>
<h1>${escaped(title)}</h1><p>${escaped(format(tree.total))} in all. Point at a frame for its measurements.</p>
<svg width="${WIDTH}" height="${depth * ROW}" xmlns="http://www.w3.org/2000/svg">${frames.join('\n')}</svg>
`;
}
