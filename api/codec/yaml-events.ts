/**
 * Parses a YAML text into events, and corrects the differences between the `js-yaml` package and the parser of kube-apiserver.
 *
 * YAML requires that lines inside brackets and quotes are indented more than the key before them. kube-apiserver does not
 * require it, and `finalizers: [` with its closing bracket below the key is common. In kube-apiserver, a block scalar at the
 * end of a text without a final line break has no final line break either.
 */
import { CHOMPING_MODE, EVENT_ID, YAMLException, parseEvents, type Event } from 'js-yaml';

/** The maximum depth of nested lists and maps. */
export const MAX_DEPTH = 1000;
/** The number of characters that may be parsed again because of indented lines. A text that needs more is refused. */
const MAX_REPARSED_CHARACTERS = 4 * 1024 * 1024;
/** The cost of starting a parser, as the number of characters that it could parse instead. */
const COST_OF_PARSER = 4096;
const NOT_INDENTED = 'deficient indentation';
const NOT_ENDED = 'end of the stream or a document separator is expected';
/** Matches a document in brackets. kube-apiserver does not read what follows it. */
const FLOW = /^\s*[[{]/;

/**
 * Returns the events, and in `source` the text to which they point: the given text with some lines indented, and without what
 * follows a document in brackets. Throws `YAMLException`.
 */
export function eventsOf(original: string): { readonly source: string; readonly events: Event[] } {
  let source = original;
  let left = MAX_REPARSED_CHARACTERS;
  let indentedTo = -1;
  for (;;) {
    try {
      return { source, events: parseEvents(source, { maxDepth: MAX_DEPTH }) };
    } catch (error) {
      if (!(error instanceof YAMLException) || error.mark === undefined) throw error;
      if (error.reason === NOT_ENDED && FLOW.test(source) && error.mark.position < source.length) {
        source = source.slice(0, error.mark.position);
        continue;
      }
      if (error.reason !== NOT_INDENTED) throw error;
      left -= source.length + COST_OF_PARSER;
      // A line that is still refused after it was indented stays refused, however far it is indented.
      if (left < 0 || error.mark.line <= indentedTo) throw error;
      indentedTo = error.mark.line;
      source = indentLine(source, error.mark.position);
    }
  }
}

const MARKER = /(?:^|[\n\r])(---|\.\.\.)(?=\s|$)/g;
/** A line that is neither blank nor a comment nor a directive. */
const CONTENT = /^[^\S\n\r]*[^\s#%]/m;

/** Returns the text up to the marker that ends its first document. A marker ends every node, also block scalars and quotes. */
export function firstDocument(text: string): string {
  let isOpen = false;
  let from = 0;
  for (const { 0: match, 1: marker = '', index } of text.matchAll(MARKER)) {
    const at = index + match.length - marker.length;
    isOpen ||= CONTENT.test(text.slice(from, at));
    if (isOpen) return text.slice(0, at);
    isOpen = marker === '---';
    from = at + marker.length;
  }
  return text;
}

/**
 * Indents the line of `position`, which is inside brackets or quotes, where leading blanks have no meaning. Also indents the
 * following lines that only close brackets.
 */
function indentLine(source: string, position: number): string {
  const start = source.lastIndexOf('\n', position - 1) + 1;
  const closing = /^(?:[^\n]*\n(?:[\t ]*[\]}][\]},\t ]*\n)*)/.exec(source.slice(start))?.[0] ?? source.slice(start);
  const blanks = ' '.repeat(deepestIndentation(source.slice(0, start)) + 2);
  const indented = closing.replaceAll(/^(?=.)/gm, blanks);
  return source.slice(0, start) + indented + source.slice(start + closing.length);
}

/** Returns an indentation that no node outside of brackets in these lines exceeds. */
function deepestIndentation(lines: string): number {
  let deepest = 0;
  for (const [prefix] of lines.matchAll(/^[ ?-]+/gm)) deepest = Math.max(deepest, prefix.length);
  return deepest;
}

/** Prevents a block scalar from getting a final line break at the end of a text without one. Modifies the event. */
export function keepMissingLineEnd(source: string, events: readonly Event[]): void {
  if (source.endsWith('\n') || source.endsWith('\r')) return;
  const last = events.findLast((event) => event.type === EVENT_ID.SCALAR);
  if (last === undefined || last.indent < 0 || last.valueEnd < source.length) return;
  const line = source.slice(Math.max(source.lastIndexOf('\n'), source.lastIndexOf('\r')) + 1);
  if (line.slice(last.indent) !== '') last.chomping = CHOMPING_MODE.STRIP;
}
