/** Parses the paths of fields in rules and selectable fields: `.a['b.c'].d`, and resolves them in a schema. */
import type { JsonSchema } from './json-schema.ts';

/** A field of a schema, or the reason why the path is invalid. */
type FieldPath =
  | { readonly names: readonly string[]; readonly schema: JsonSchema; readonly shown: string }
  | { readonly error: string };

const ESCAPES: ReadonlyMap<string, string> = new Map(
  Object.entries({
    a: '\u0007',
    b: '\b',
    f: '\f',
    n: '\n',
    r: '\r',
    t: '\t',
    v: '\v',
    "'": "'",
    '\\': '\\',
  }),
);

/** Splits a path into dots, brackets, quoted texts and names. */
function tokensOf(path: string): string[] {
  const tokens: string[] = [];
  let unread = path;
  while (unread !== '') {
    const quoted = unread.startsWith("'") ? (/^'(?:[^']|(?<=\\)')*?(?<!\\)'/s.exec(unread)?.[0] ?? unread) : undefined;
    const token = quoted ?? /^(?:[.[\]]|[^.[\]]+)/s.exec(unread)?.[0] ?? unread;
    tokens.push(token);
    unread = unread.slice(token.length);
  }
  return tokens;
}

/** Returns the names of the path and the schema at its end, or why the path is invalid. `brackets` allows `['name']`. */
export function readFieldPath(path: string, root: JsonSchema, { brackets }: { readonly brackets: boolean }): FieldPath {
  const tokens = tokensOf(path);
  const names: string[] = [];
  let shown = '';
  let schema = root;
  for (let at = 0; at < tokens.length; at += 1) {
    const opening = tokens[at];
    if (opening !== '.' && opening !== '[') return { error: `expected [ or . but got: ${opening}` };
    if (opening === '[' && !brackets) return { error: 'array notation is not allowed' };
    at += 1;
    const token = tokens[at];
    if (token === undefined) return { error: 'unexpected end of JSON path' };
    let name = token;
    if (opening === '[') {
      const read = unquoted(token);
      if ('error' in read) return read;
      ({ name } = read);
    }
    const step = enter(schema, name);
    if (step === undefined) return { error: 'does not refer to a valid field' };
    shown += step.named ? (shown === '' ? name : `.${name}`) : `[${name}]`;
    schema = step.schema;
    names.push(name);
    if (opening === '[') {
      at += 1;
      if (tokens[at] === undefined) return { error: 'unexpected end of JSON path' };
      if (tokens[at] !== ']') return { error: `expected ] but got ${tokens[at]}` };
    }
  }
  return { names, schema, shown };
}

function unquoted(token: string): { readonly name: string } | { readonly error: string } {
  if (token.length < 2 || !token.startsWith("'") || !token.endsWith("'")) {
    return { error: `expected single quoted string but got ${token}` };
  }
  let wrong: string | undefined;
  const name = token.slice(1, -1).replace(/\\(.)/gs, (escape, letter: string) => {
    const char = ESCAPES.get(letter);
    if (char === undefined) wrong = escape;
    return char ?? '';
  });
  return wrong === undefined ? { name } : { error: `invalid string literal: invalid escape char ${wrong}` };
}

function enter(schema: JsonSchema, name: string): { readonly schema: JsonSchema; readonly named: boolean } | undefined {
  const { properties, additionalProperties } = schema;
  if (properties !== undefined) {
    const inner = Object.hasOwn(properties, name) ? properties[name] : undefined;
    return inner === undefined ? undefined : { schema: inner, named: true };
  }
  return typeof additionalProperties === 'object' ? { schema: additionalProperties, named: false } : undefined;
}

/** Returns why a path is invalid in the schema, or `undefined` if it is valid. */
export function fieldPathError(path: string, schema: JsonSchema): string | undefined {
  const read = readFieldPath(path, schema, { brackets: true });
  return 'error' in read ? read.error : undefined;
}
