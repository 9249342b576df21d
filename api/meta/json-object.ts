/** Distinguishes objects among decoded JSON values, such as patches, configuration files, tokens and answers of others. */
import type { JsonObject } from './object.ts';

/** Whether a decoded JSON value is an object, and neither an array nor null. Its members are still to be judged. */
export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
