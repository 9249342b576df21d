/** Finds the positions of keys and values in a YAML or JSON text, for messages with line and column. Both count from 1. */
import { EVENT_ID, getScalarValue, parseEvents } from 'js-yaml';

interface Position {
  readonly line: number;
  readonly column: number;
}

/** The positions of one text. */
export interface Positions {
  /**
   * Returns the position of a path in the first document. If the path is not found, because an alias or a merge provides it,
   * returns that of its nearest parent, or the start of the text.
   */
  find(path: readonly string[], part: 'key' | 'value'): Position;
}

const MAX_DEPTH = 1000;

/** A document, map or list that the events have begun and not ended. */
interface OpenNode {
  readonly path: readonly string[];
  readonly kind: 'map' | 'list' | 'document';
  /** The key of the next value, in a map. */
  key: string | undefined;
  index: number;
}

/** Returns the positions of the fields in a text of YAML, which must be valid. */
export function positionsOf(text: string): Positions {
  const keys = new Map<string, number>();
  const values = new Map<string, number>();
  const open: OpenNode[] = [];
  let documents = 0;
  const recordValue = (start: number): readonly string[] => {
    const around = open.at(-1);
    const path =
      around === undefined || around.kind === 'document'
        ? []
        : [...around.path, around.kind === 'list' ? String(around.index) : (around.key ?? '')];
    if (documents === 1 && !values.has(join(path))) values.set(join(path), start);
    return path;
  };
  const endValue = (): void => {
    const around = open.at(-1);
    if (around === undefined) return;
    around.key = undefined;
    around.index += 1;
  };
  for (const event of parseEvents(text, { maxDepth: MAX_DEPTH })) {
    switch (event.type) {
      case EVENT_ID.DOCUMENT:
        documents += 1;
        open.push({ path: [], kind: 'document', key: undefined, index: 0 });
        break;
      case EVENT_ID.MAPPING:
      case EVENT_ID.SEQUENCE: {
        const path = recordValue(event.start);
        open.push({ path, kind: event.type === EVENT_ID.MAPPING ? 'map' : 'list', key: undefined, index: 0 });
        break;
      }
      case EVENT_ID.POP:
        open.pop();
        endValue();
        break;
      case EVENT_ID.SCALAR: {
        const around = open.at(-1);
        if (around?.kind === 'map' && around.key === undefined) {
          around.key = getScalarValue(text, event);
          const at = join([...around.path, around.key]);
          if (documents === 1 && !keys.has(at)) keys.set(at, event.valueStart);
          break;
        }
        recordValue(event.valueStart);
        endValue();
        break;
      }
      default:
        endValue();
    }
  }
  return {
    find(path, part) {
      for (let length = path.length; length > 0; length--) {
        const at = join(path.slice(0, length));
        const offset = (part === 'value' && length === path.length ? values.get(at) : undefined) ?? keys.get(at);
        if (offset !== undefined) return positionOf(text, offset);
      }
      return { line: 1, column: 1 };
    },
  };
}

function join(path: readonly string[]): string {
  return path.join('\u0000');
}

function positionOf(text: string, offset: number): Position {
  const before = text.slice(0, offset);
  return { line: before.split('\n').length, column: offset - before.lastIndexOf('\n') };
}
