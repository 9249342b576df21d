/**
 * Words the errors of the YAML parser as kube-apiserver's parser does. That parser counts lines from 0, reports a line only if
 * it is not the first, and adds 1 in errors about tokens, but not in errors about the structure.
 */
import type { YAMLException } from 'js-yaml';

interface Place {
  readonly text: string;
  readonly position: number;
  readonly line: number;
}

/** Returns an error about a token. */
function aboutToken(line: number, text: string): string {
  return line === 0 ? `yaml: ${text}` : `yaml: line ${line + 1}: ${text}`;
}

/** Returns an error about the structure. */
function aboutStructure(line: number, text: string): string {
  return line === 0 ? `yaml: ${text}` : `yaml: line ${line}: ${text}`;
}

const NO_TOKEN = 'found character that cannot start any token';
const NO_MAPPING = 'mapping values are not allowed in this context';

/** The texts of errors about tokens, by the reason that js-yaml gives. */
const TOKENS: readonly (readonly [RegExp, string])[] = [
  [/^unexpected end of the stream within a (?:double|single) quoted scalar/, 'found unexpected end of stream'],
  [/^unknown escape sequence/, 'found unknown escape character'],
  [/^expected hexadecimal character/, 'did not find expected hexdecimal number'],
  [/^a line break is expected/, 'did not find expected comment or line break'],
  [/^directives end mark is expected/, 'found unknown directive name'],
];

/** Returns the message of an error. Errors that kube-apiserver's parser does not know keep their reason. */
export function yamlErrorText({ reason, mark }: YAMLException): string {
  // An alias is resolved after parsing, without a position.
  const alias = /^unidentified alias "(.*)"$/.exec(reason)?.[1];
  if (alias !== undefined) return `yaml: unknown anchor '${alias}' referenced`;
  if (reason.startsWith('cannot merge mappings'))
    return 'yaml: map merge requires map or sequence of maps as the value';
  if (mark === undefined || mark === null) return `yaml: ${reason}`;
  const place: Place = { text: mark.buffer ?? '', position: mark.position, line: mark.line };
  for (const [pattern, text] of TOKENS) if (pattern.test(reason)) return aboutToken(place.line, text);
  if (reason.includes('tab characters')) return aboutToken(place.line, tabText(place));
  if (reason.includes('bad indentation of a mapping entry')) return badEntry(place);
  if (reason.includes('bad indentation of a sequence entry')) return badItem(place);
  if (/expected ':' after a mapping key|a multiline key may not be an implicit key/.test(reason))
    return aboutToken(endLine(place), "could not find expected ':'");
  if (/deficient indentation|missed comma|within a flow collection/.test(reason)) return inFlow(reason, place);
  if (reason.startsWith('end of the stream or a document separator is expected')) return afterBlock(place);
  return `yaml: line ${place.line + 1}: ${reason}`;
}

/** Returns the line of a place. The end of a text without a line break at its end is on a line of its own. */
function endLine({ text, position, line }: Place): number {
  return position >= text.length && !text.endsWith('\n') ? line + 1 : line;
}

/** Returns the message for a tab: it continues the value of the previous line, or else begins a token. */
function tabText({ text, position }: Place): string {
  const before = text.slice(0, position).trimEnd();
  return before === '' || /[:\-?,[{]$/.test(before) ? NO_TOKEN : 'found a tab character that violates indentation';
}

function badEntry(place: Place): string {
  const { text, position, line } = place;
  const character = text.charAt(position);
  const lines = text.slice(0, position).split('\n');
  const indent = indentOf(text.split('\n')[line] ?? '');
  const isOnlyIndent = (lines.at(-1) ?? '').trim() === '';
  // A line between the indentations of two blocks is a key of neither.
  if (isOnlyIndent && line > 0 && indent < indentOf(lines.at(-2) ?? '')) {
    return aboutStructure(line, 'did not find expected key');
  }
  if (character === '-') return aboutToken(line, 'block sequence entries are not allowed in this context');
  const isAfterValue = /["'\]}]\s*$/.test(lines.at(-1) ?? '');
  if (isAfterValue && character !== ':') return aboutStructure(line, 'did not find expected key');
  if (/[@`%]/.test(character)) return aboutToken(line, NO_TOKEN);
  if (/[\]},]/.test(character)) return aboutStructure(line, 'did not find expected node content');
  return aboutToken(line, NO_MAPPING);
}

function badItem({ text, position, line }: Place): string {
  const begins = text.slice(text.lastIndexOf('\n', position - 1) + 1, position).trim() === '';
  return begins ? aboutStructure(line, "did not find expected '-' indicator") : aboutToken(line, NO_MAPPING);
}

const indentOf = (line: string): number => line.length - line.trimStart().length;

function inFlow(reason: string, place: Place): string {
  // js-yaml reports an empty last line as one with deficient indentation.
  const atEnd = reason.includes('unexpected end of the stream') || place.text.slice(place.position).trim() === '';
  const line = atEnd ? endLine(place) : place.line;
  if (atEnd && /[[{,]$/.test(place.text.slice(0, place.position).trimEnd()))
    return aboutStructure(line, 'did not find expected node content');
  return aboutStructure(line, `did not find expected ',' or '${closingBracket(place)}'`);
}

/** Returns the bracket that ends the innermost flow collection around an error. Brackets in quotes do not count. */
function closingBracket({ text, position }: Place): string {
  const before = text.slice(0, position);
  const open: string[] = [];
  /** The quotes that no later quote ends, such as an apostrophe in a word. */
  const unpaired = new Set<string>();
  for (let at = 0; at < before.length; at += 1) {
    const character = before.charAt(at);
    if (character === '[' || character === '{') open.push(character);
    else if (character === ']' || character === '}') open.pop();
    else if ((character === '"' || character === "'") && !unpaired.has(character)) {
      const end = closingQuote(before, at);
      if (end === -1) unpaired.add(character);
      else at = end;
    }
  }
  return open.at(-1) === '[' ? ']' : '}';
}

/** Returns the position of the quote that ends the one at `start`, or -1. A backslash escapes in double quotes. */
function closingQuote(text: string, start: number): number {
  const quote = text.charAt(start);
  for (let at = start + 1; at < text.length; at += 1) {
    const character = text.charAt(at);
    if (character === quote) return at;
    if (character === '\\' && quote === '"') at += 1;
  }
  return -1;
}

/**
 * Returns the message for a line that belongs to no block. It names the kind of the block before it, which the first line
 * shows.
 */
function afterBlock({ text, line }: Place): string {
  const first = text.split('\n').find((one) => one.trim() !== '') ?? '';
  return aboutStructure(
    line,
    first.startsWith('- ') ? "did not find expected '-' indicator" : 'did not find expected key',
  );
}
