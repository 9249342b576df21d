/**
 * Reads the descriptions of the parameters of operations from the declarations of the client package, as
 * `descriptions.ts` reads those of types. The file is read on first use.
 */
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

/** The declarations of the operations of the core group, which has every parameter. A bundle has them beside the models. */
export const OPERATIONS_FILE = 'CoreV1Api.d.ts';

let source: string | undefined;
const texts = new Map<string, ReadonlyMap<string, string>>();

/**
 * Returns the description of a parameter of an operation of the core group, such as `limit` of `listNamespacedPod`. It is empty
 * if the package has none.
 */
export function parameterText(operation: string, parameter: string): string {
  let operationTexts = texts.get(operation);
  if (operationTexts === undefined) {
    operationTexts = read(operation);
    texts.set(operation, operationTexts);
  }
  return operationTexts.get(parameter) ?? '';
}

function read(operation: string): ReadonlyMap<string, string> {
  source ??= readFileSync(operationsFile(), 'utf8');
  const end = source.indexOf(`\n    ${operation}(`);
  const start = source.lastIndexOf('/**', end);
  const comment = end < 0 || start < 0 ? '' : source.slice(start, end);
  return new Map(
    [...comment.matchAll(/^ +\* @param _?(\w+) (.+)$/gm)].map(([, name = '', text = '']) => [
      name,
      restored(name, text),
    ]),
  );
}

function operationsFile(): string {
  const beside = join(import.meta.dirname, 'models', OPERATIONS_FILE);
  if (existsSync(beside)) return beside;
  return join(
    dirname(createRequire(import.meta.url).resolve('@kubernetes/client-node')),
    'gen',
    'apis',
    OPERATIONS_FILE,
  );
}

const ENTITIES: ReadonlyMap<string, string> = new Map(Object.entries({ quot: '"', amp: '&', lt: '<', gt: '>' }));
/** The one text with two blanks that stand for themselves. */
const ONE_PARAGRAPH = 'insecureSkipTLSVerifyBackend';
/** What blanks between words stand for: an empty line, and the indentation of the next line. */
const BREAKS: Readonly<Record<number, string>> = { 2: '\n\n', 3: '\n  ', 4: '\n\n  ', 5: '\n    ' };

/** Returns the text as it was before the generator of the package escaped it and replaced its line breaks by blanks. */
function restored(name: string, text: string): string {
  const plain = text.replaceAll(/\\?&(?:#x([0-9A-F]+)|#(\d+)|(\w+));/g, (whole, hex, decimal, entity) =>
    entity === undefined
      ? String.fromCharCode(hex === undefined ? Number(decimal) : Number.parseInt(String(hex), 16))
      : (ENTITIES.get(String(entity)) ?? whole),
  );
  if (name === ONE_PARAGRAPH) return plain;
  const lines = plain.replaceAll(/(?<=\S)( {2,5})(?=\S)(?!will)/g, (blanks) => BREAKS[blanks.length] ?? blanks);
  // In a text with indented lines, a dash after a sentence begins an item of the list.
  return lines.includes('\n  ') ? lines.replaceAll('. - ', '.\n- ') : lines;
}
