/** Converts an option's value between the JSON of the configuration file and the form that the program uses. */
import { formatDuration, parseDuration } from '../../../api/component/duration.ts';
import { type FlagType, type FlagTypes, valueProblem } from '../../../api/component/flags.ts';
import type { AnyOption, JsonForm } from '../option.ts';

type ReadField = { readonly value: FlagTypes[FlagType] } | { readonly problem: string };

/** Returns the value of a row from its JSON in the file. Applies the checks of the flag, unless a zero means the default. */
export function readField(row: AnyOption, json: unknown): ReadField {
  const form = row.config?.json as JsonForm<FlagType> | undefined;
  const result: ReadField = form === undefined ? readPlain(row.type, json) : form.read(json);
  if ('problem' in result) return result;
  // Zero means the default for fields that cannot say "not set" otherwise.
  if (row.config?.keepsZero !== true && isZero(result.value)) return result;
  const problem = valueProblem(row, result.value);
  return problem === undefined ? result : { problem };
}

function readPlain(type: FlagType, json: unknown): ReadField {
  switch (type) {
    case 'string':
      return typeof json === 'string' ? { value: json } : { problem: `must be text, not ${describe(json)}` };
    case 'boolean':
      return typeof json === 'boolean' ? { value: json } : { problem: `must be true or false, not ${describe(json)}` };
    case 'integer':
      return Number.isSafeInteger(json)
        ? { value: json as number }
        : { problem: `must be a whole number, not ${describe(json)}` };
    case 'number':
      return typeof json === 'number' ? { value: json } : { problem: `must be a number, not ${describe(json)}` };
    case 'duration': {
      const value = typeof json === 'string' ? parseDuration(json) : undefined;
      return value === undefined ? { problem: `must be a duration such as "30s", not ${describe(json)}` } : { value };
    }
    case 'list':
    case 'array':
      return Array.isArray(json) && json.every((item) => typeof item === 'string')
        ? { value: json }
        : { problem: `must be a list of text, not ${describe(json)}` };
    case 'map':
      return isTextMap(json) ? { value: json } : { problem: `must be a map of text, not ${describe(json)}` };
    default:
      return type satisfies never;
  }
}

function isTextMap(json: unknown): json is Record<string, string> {
  return (
    typeof json === 'object' &&
    json !== null &&
    !Array.isArray(json) &&
    Object.values(json).every((value) => typeof value === 'string')
  );
}

function describe(json: unknown): string {
  const text = JSON.stringify(json) ?? String(json);
  return text.length > 60 ? `${text.slice(0, 57)}…` : text;
}

/** Whether the value is a zero value in Go: '', 0, false, an empty list or map. */
export function isZero(value: FlagTypes[FlagType]): boolean {
  if (typeof value === 'object') return Object.keys(value).length === 0;
  return value === '' || value === 0 || value === false;
}

/** Returns the JSON of a value, as the file and `/configz` have it. */
export function writeField(row: AnyOption, value: FlagTypes[FlagType]): unknown {
  const form = row.config?.json as JsonForm<FlagType> | undefined;
  if (form !== undefined) return form.write(value);
  return row.type === 'duration' ? formatDuration(value as number) : value;
}
