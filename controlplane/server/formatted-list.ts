/**
 * Formats a list as indented JSON or as YAML, item by item. The values of a whole list may take more memory than there is, and
 * formatting them at once would block all other requests.
 */
import { parseExactJson, stringifyJson } from '../../api/codec/json.ts';
import type { JsonObject, JsonValue } from '../../api/meta/object.ts';

/** A list that is formatted while it is sent. */
export interface FormattedList {
  /** The list without items as JSON. */
  readonly frame: string;
  /** The member of the frame with the items. */
  readonly member: 'items' | 'rows';
  /** The items as JSON. They are read once, and only as far as the client has taken the text. */
  readonly items: Iterable<Buffer>;
  /** The members of items that the list does not show. */
  readonly omitted: readonly string[];
}

type Yaml = (value: unknown) => Iterable<string>;

/** Yields chunks of at least `chunkBytes`, except for the last. `yaml` encodes YAML, and is absent for JSON. */
export function formattedChunks(list: FormattedList, chunkBytes: number, yaml?: Yaml): Generator<Buffer> {
  return inChunks(yaml === undefined ? indented(list) : inYaml(list, yaml), chunkBytes);
}

/** Joins parts of a text to chunks of at least `chunkBytes`, except for the last. */
export function* inChunks(text: Iterable<string>, chunkBytes: number): Generator<Buffer> {
  let parts: string[] = [];
  let length = 0;
  for (const part of text) {
    parts.push(part);
    length += part.length;
    if (length < chunkBytes) continue;
    yield Buffer.from(parts.join(''));
    parts = [];
    length = 0;
  }
  if (length > 0) yield Buffer.from(parts.join(''));
}

const EMPTY = '[]';

function* indented(list: FormattedList): Generator<string> {
  // The member is the last one of the frame, so the last empty list of the text is its value.
  const frame = stringifyJson(parseExactJson(list.frame), 2);
  const at = frame.lastIndexOf(EMPTY);
  yield frame.slice(0, at + 1);
  let count = 0;
  for (const value of valuesOf(list)) {
    // An item is two levels deep.
    const text = stringifyJson([[value]], 2);
    yield `${count === 0 ? '' : ','}${text.slice('[\n  ['.length, -'\n  ]\n]'.length)}`;
    count += 1;
  }
  yield `${count === 0 ? '' : '\n  '}${frame.slice(at + 1)}`;
}

function* inYaml(list: FormattedList, yaml: Yaml): Generator<string> {
  const frame = parseExactJson(list.frame) as JsonObject;
  const members = (from: string, to: string): Iterable<string> => {
    const part = Object.entries(frame).filter(([key]) => key > from && (to === '' || key < to));
    return part.length === 0 ? [] : yaml(Object.fromEntries(part));
  };
  yield* members('', list.member);
  let count = 0;
  for (const value of valuesOf(list)) {
    if (count === 0) yield `${list.member}:\n`;
    yield* yaml([value]);
    count += 1;
  }
  if (count === 0) yield* yaml({ [list.member]: [] });
  yield* members(list.member, '');
}

function* valuesOf({ items, omitted }: FormattedList): Generator<JsonValue> {
  for (const item of items) {
    const value = parseExactJson(item.toString());
    if (omitted.length === 0) yield value;
    else yield Object.fromEntries(Object.entries(value as JsonObject).filter(([key]) => !omitted.includes(key)));
  }
}
