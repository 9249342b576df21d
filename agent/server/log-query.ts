/** Parses the parameters of `/logs/?query=` and validates them as the kubelet does. */
import { type FieldError, invalid, required, tooMany } from '../../api/meta/field-error.ts';
import { quoteText } from '../../api/meta/quote.ts';

/** The valid parameters. Times are in milliseconds since 1970; `undefined` stands for a parameter that is not set. */
export interface LogQuery {
  readonly services: readonly string[];
  readonly files: readonly string[];
  readonly sinceTime: number | undefined;
  readonly untilTime: number | undefined;
  readonly tailLines: number | undefined;
  readonly boot: number | undefined;
  readonly pattern: string;
  /** Whether the request has parameters other than `query`. */
  readonly hasOptions: boolean;
}

/**
 * The limits of the kubelet: services of one query, lines of its response, and characters of a service's name. The kubelet's
 * error for a longer name states 100 characters.
 */
const MAX_SERVICES = 4;
const MAX_LINES = 100_000;
const LONGEST_NAME = 256;

/** Returns the query, `undefined` if the request has none of its parameters, or the errors of values that cannot be parsed. */
export function parseLogQuery(query: URLSearchParams): LogQuery | undefined | FieldError[] {
  const errors: FieldError[] = [];
  const queries = query.getAll('query');
  // A slash is a hint that a file is meant.
  const files = queries.filter((text) => /[/\\]/.test(text));
  const services = queries.filter((text) => !/[/\\]/.test(text) && text.trim() !== '');
  if (query.has('query') && files.length + services.length === 0)
    errors.push(invalid('query', queries, 'query cannot be empty'));
  const timeOf = (name: string): number | undefined => {
    const text = query.get(name) ?? '';
    if (text === '') return undefined;
    const ms = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/.test(text) ? Date.parse(text) : NaN;
    if (Number.isNaN(ms)) errors.push(invalid(name, text, 'invalid time format'));
    return ms;
  };
  const numberOf = (name: string): number | undefined => {
    const text = query.get(name) ?? '';
    if (text === '') return undefined;
    const value = /^[+-]?\d+$/.test(text) ? Number(text) : NaN;
    if (!Number.isSafeInteger(value)) {
      const why = `strconv.Atoi: parsing ${quoteText(text)}: invalid syntax`;
      errors.push(invalid(name, text, why));
    }
    return value;
  };
  const sinceTime = timeOf('sinceTime');
  const untilTime = timeOf('untilTime');
  const boot = numberOf('boot');
  const tailLines = numberOf('tailLines');
  const pattern = query.get('pattern') ?? '';
  if (errors.length > 0) return errors;
  const hasOptions = [sinceTime, untilTime, boot, tailLines].some((value) => value !== undefined) || pattern !== '';
  if (!hasOptions && files.length + services.length === 0) return undefined;
  return { services, files, sinceTime, untilTime, boot, tailLines, pattern, hasOptions };
}

/** Returns the errors of a query. `find` returns a file below the directory of logs, or nothing. */
export async function validateLogQuery(
  query: LogQuery,
  find: (file: string) => Promise<unknown>,
): Promise<FieldError[]> {
  const { services, files, sinceTime, untilTime, boot, tailLines, pattern } = query;
  const errors = services.flatMap((name) => {
    if (name.length > LONGEST_NAME) return invalid('query', name, 'length must be less than 100');
    return /[^a-zA-Z\-_0-9@]/.test(name) ? invalid('query', name, 'input contains unsupported characters') : [];
  });
  if (services.length > MAX_SERVICES) errors.push(tooMany('query', services.length, MAX_SERVICES));
  const [file] = files;
  if (file === undefined) {
    if (services.length === 0) errors.push(required('query', 'cannot be empty with options'));
  } else if (services.length > 0)
    errors.push(invalid('query', `[${files.join(' ')}], [${services.join(' ')}]`, 'cannot specify a file and service'));
  else if (files.length > 1) errors.push(invalid('query', files, 'cannot specify more than one file'));
  else if (query.hasOptions) errors.push(invalid('query', files, 'cannot specify file with options'));
  else if ((await find(file.replaceAll('\\', '/'))) === undefined)
    errors.push(invalid('query', files, `stat ${file}: no such file or directory`));
  if (sinceTime !== undefined && untilTime !== undefined && sinceTime > untilTime)
    errors.push(invalid('untilTime', new Date(untilTime).toISOString(), 'must be after `sinceTime`'));
  if (boot !== undefined && boot > 0) errors.push(invalid('boot', boot, 'must be less than 1'));
  if (tailLines !== undefined && (tailLines < 0 || tailLines > MAX_LINES))
    errors.push(invalid('tailLines', tailLines, `must be between 0 and ${MAX_LINES}, inclusive`));
  if (!isPattern(pattern)) errors.push(invalid('pattern', pattern, 'error parsing regexp'));
  return errors;
}

function isPattern(text: string): boolean {
  try {
    new RegExp(text);
    return true;
  } catch (error) {
    if (error instanceof SyntaxError) return false;
    throw error;
  }
}
