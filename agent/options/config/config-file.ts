/**
 * Reads `KubeletConfiguration` files: `--config` and the drop-ins of `--config-dir`. A file with an unknown field, a value of
 * the wrong type, a duplicate key, or another kind or version is rejected as a whole, with line and column. The result is the
 * file's JSON, which matches the option table, with absolute paths.
 */
import { readdir, readFile, stat } from 'node:fs/promises';
import { dirname, isAbsolute, join, resolve } from 'node:path';
import { YAMLException } from 'js-yaml';
import { nearest } from '../../../api/component/flags.ts';
import { parseYaml, YamlSyntaxError } from '../../../api/codec/yaml.ts';
import type { JsonObject, JsonValue } from '../../../api/meta/object.ts';
import { quoteText } from '../../../api/meta/quote.ts';
import type { OptionTable } from '../option.ts';
import { ConfigurationError } from '../../base/model/configuration-error.ts';
import { readField } from './field-value.ts';
import { positionsOf, type Positions } from './yaml-positions.ts';

/** The only `apiVersion` that is accepted. */
export const CONFIG_VERSION = 'kubelet.config.k8s.io/v1beta1';
/** The only `kind` that is accepted. */
export const CONFIG_KIND = 'KubeletConfiguration';
const MAX_BYTES = 1 << 20;
/** The number of mistakes that an error lists; it counts the others. */
const MAX_MISTAKES = 10;

/** A file that was read. `file` is its absolute path. */
export interface ConfigFile {
  readonly file: string;
  /** The fields of the file without apiVersion and kind. */
  readonly fields: JsonObject;
}

/** Reads a configuration file. Throws `ConfigurationError` with `file:line:column: message` for each mistake. */
export async function readConfigFile(path: string, table: OptionTable): Promise<ConfigFile> {
  const file = resolve(path);
  let text: string;
  try {
    if ((await stat(file)).size > MAX_BYTES) throw new Error(`it is larger than ${MAX_BYTES} bytes`);
    text = await readFile(file, 'utf8');
  } catch (error) {
    throw new ConfigurationError(`the configuration file ${file} cannot be read: ${(error as Error).message}`, {
      cause: error,
    });
  }
  return parseConfigFile(text, file, table);
}

/**
 * Returns the drop-ins of a directory and its subdirectories, `*.conf`, in order of their paths. Throws `ConfigurationError` if
 * the directory cannot be read.
 */
export async function dropInFiles(directory: string): Promise<readonly string[]> {
  const root = resolve(directory);
  try {
    const entries = await readdir(root, { recursive: true, withFileTypes: true });
    return entries
      .filter((entry) => !entry.isDirectory() && entry.name.endsWith('.conf'))
      .map((entry) => join(entry.parentPath, entry.name))
      .toSorted(byParts);
  } catch (error) {
    throw new ConfigurationError(`the directory of drop-ins ${root} cannot be read: ${(error as Error).message}`, {
      cause: error,
    });
  }
}

/** Compares paths part by part, so that all files of `10/` come before `10.conf`. */
function byParts(left: string, right: string): number {
  const [parts, others] = [left.split('/'), right.split('/')];
  const at = parts.findIndex((part, index) => part !== others[index]);
  return (parts[at] ?? '') < (others[at] ?? '') ? -1 : 1;
}

function parseConfigFile(text: string, file: string, table: OptionTable): ConfigFile {
  let value: JsonValue;
  let duplicates: readonly string[];
  try {
    ({ value, duplicates } = parseYaml(text));
  } catch (error) {
    if (!(error instanceof YamlSyntaxError)) throw error;
    const mark = error.cause instanceof YAMLException ? error.cause.mark : undefined;
    const message = error.message.replace(/^yaml: (line \d+: )?/, '');
    throw new ConfigurationError(
      `${file}${mark === undefined ? '' : `:${mark.line + 1}:${mark.column + 1}`}: ${message}`,
      { cause: error },
    );
  }
  const [duplicate] = duplicates;
  if (duplicate !== undefined) {
    const [, line = '1', key = ''] = /^line (\d+): key (.*) already set in map$/.exec(duplicate) ?? [];
    const column = (text.split('\n')[Number(line) - 1]?.search(/\S/) ?? 0) + 1;
    throw new ConfigurationError(`${file}:${line}:${column}: the field ${key} is set twice`);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new ConfigurationError(`${file}:1:1: must hold a ${CONFIG_KIND}`);
  const reader = new Reader(file, positionsOf(text), table);
  return { file, fields: reader.read(value) };
}

/** The tree of the option table's field paths, with a row at each leaf. */
interface Branch {
  readonly children: Map<string, Branch>;
  row?: OptionTable[string];
}

function treeOf(table: OptionTable): Branch {
  const root: Branch = { children: new Map() };
  for (const row of Object.values(table)) {
    if (row.config === undefined) continue;
    let branch = root;
    for (const name of row.config.path.split('.')) {
      let next = branch.children.get(name);
      if (next === undefined) {
        next = { children: new Map() };
        branch.children.set(name, next);
      }
      branch = next;
    }
    branch.row = row;
  }
  return root;
}

class Reader {
  readonly #file: string;
  readonly #positions: Positions;
  readonly #tree: Branch;
  readonly #faults: string[] = [];

  constructor(file: string, positions: Positions, table: OptionTable) {
    this.#file = file;
    this.#positions = positions;
    this.#tree = treeOf(table);
  }

  read(document: JsonObject): JsonObject {
    const { apiVersion, kind, ...fields } = document;
    this.#header('kind', kind, CONFIG_KIND);
    this.#header('apiVersion', apiVersion, CONFIG_VERSION);
    const read = this.#faults.length > 0 ? {} : this.#branch(fields, this.#tree, []);
    if (this.#faults.length > 0) {
      const more = this.#faults.length - MAX_MISTAKES;
      throw new ConfigurationError(
        [...this.#faults.slice(0, MAX_MISTAKES), ...(more > 0 ? [`and ${more} more`] : [])].join('\n'),
      );
    }
    return read;
  }

  #header(name: string, value: JsonValue | undefined, wanted: string): void {
    if (value === undefined) this.#faults.push(`${this.#file}:1:1: ${name} is missing: it must be ${wanted}`);
    else if (value !== wanted)
      this.#addFault(
        [name],
        'value',
        `unknown ${name === 'kind' ? 'kind' : 'version'} ${JSON.stringify(value)}: only ${wanted} is read`,
      );
  }

  #addFault(path: readonly string[], part: 'key' | 'value', message: string): void {
    const { line, column } = this.#positions.find(path, part);
    this.#faults.push(`${this.#file}:${line}:${column}: ${message}`);
  }

  #branch(members: JsonObject, branch: Branch, path: readonly string[]): JsonObject {
    const read: JsonObject = {};
    for (const [name, value] of Object.entries(members)) {
      const child = branch.children.get(name);
      const at = [...path, name];
      if (child === undefined) {
        const near = nearest(name, [...branch.children.keys()]);
        this.#addFault(
          at,
          'key',
          `unknown field ${quoteText(at.join('.'))}${near === undefined ? '' : ` (did you mean ${near}?)`}`,
        );
      } else if (value === null || value === undefined) {
        read[name] = null;
      } else if (child.row !== undefined) {
        const result = readField(child.row, value);
        if ('problem' in result) this.#addFault(at, 'value', `${at.join('.')} ${result.problem}`);
        else read[name] = this.#absolute(child.row, value);
      } else if (typeof value !== 'object' || Array.isArray(value)) {
        this.#addFault(at, 'value', `${at.join('.')} must be a map`);
      } else {
        read[name] = this.#branch(value, child, at);
      }
    }
    return read;
  }

  #absolute(row: OptionTable[string], value: JsonValue): JsonValue {
    return row.config?.isPath === true && typeof value === 'string' && value !== '' && !isAbsolute(value)
      ? resolve(dirname(this.#file), value)
      : value;
  }
}
