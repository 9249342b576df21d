/**
 * Checks the form of configuration files. Otherwise a field with a misspelled name or of another type would silently be
 * ignored, and with it the rule of authentication, authorization or admission that it states. kube-apiserver decodes these
 * files as strictly.
 */
import { parseYaml } from '../../api/codec/yaml.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import { memberPath } from '../../api/meta/field-error.ts';
import { isJsonObject } from '../../api/meta/json-object.ts';
import { quoteText } from '../../api/meta/quote.ts';

/** The values of `apiVersion` in the files of authentication and authorization. */
export const API_SERVER_CONFIG_VERSIONS: ReadonlySet<string> = new Set(
  ['v1', 'v1beta1', 'v1alpha1'].map((version) => `apiserver.config.k8s.io/${version}`),
);

/** The form of a value: a scalar, a list of one form, or an object by its fields, each of which may be absent or null. */
export type ConfigShape =
  | 'text'
  | 'number'
  | 'boolean'
  | 'any'
  | readonly [ConfigShape]
  | { readonly [field: string]: ConfigShape };

const SCALARS = {
  text: { types: ['string'], expected: 'a text' },
  number: { types: ['number', 'bigint'], expected: 'a number' },
  boolean: { types: ['boolean'], expected: 'true or false' },
} as const;

/** Parses the YAML or JSON of a file. For a text that is neither, or a repeated key, throws an error that names the path. */
export function parseConfigFile(text: string, path: string): unknown {
  let parsed: ReturnType<typeof parseYaml>;
  try {
    parsed = parseYaml(text);
  } catch (error) {
    throw new Error(`${path}: ${errorMessage(error)}`, { cause: error });
  }
  const { value, duplicates } = parsed;
  const [duplicate] = duplicates;
  if (duplicate !== undefined) throw new Error(`${path}: ${duplicate}`);
  return value;
}

/**
 * Returns the first fault of the value, with the path of its field, and `undefined` if it has the shape. `at` is the path of
 * the value, and empty for the whole file. The text shows no values, because they can be secrets.
 */
export function shapeFault(value: unknown, shape: ConfigShape, at = ''): string | undefined {
  if (value === undefined || value === null || shape === 'any') return undefined;
  const place = at === '' ? 'the file' : at;
  if (typeof shape === 'string') {
    const { types, expected } = SCALARS[shape];
    return types.some((type) => type === typeof value) ? undefined : `${place} must be ${expected}`;
  }
  if (isList(shape)) {
    if (!Array.isArray(value)) return `${place} must be a list`;
    return first(value.entries(), ([index, item]) => shapeFault(item, shape[0], `${at}[${index}]`));
  }
  if (!isJsonObject(value)) return `${place} must be an object`;
  return first(Object.entries(value), ([field, item]) => {
    const path = memberPath(at, field);
    const fieldShape = Object.hasOwn(shape, field) ? shape[field] : undefined;
    return fieldShape === undefined ? `unknown field ${quoteText(path)}` : shapeFault(item, fieldShape, path);
  });
}

const isList = (shape: object): shape is readonly [ConfigShape] => Array.isArray(shape);

function first<T>(items: Iterable<T>, faultOf: (item: T) => string | undefined): string | undefined {
  for (const item of items) {
    const fault = faultOf(item);
    if (fault !== undefined) return fault;
  }
  return undefined;
}
