/** Bodies in JSON and YAML as values, with the reference's complaint where they are none. */
import { JsonSyntaxError, parseJson } from '../../api/codec/json.ts';
import { newBadRequest } from '../../api/meta/status-error.ts';
import type { TextDecoders } from './body.ts';

export function jsonDecoder(text: string): ReturnType<TextDecoders['json']> {
  try {
    return parseJson(text);
  } catch (error) {
    if (error instanceof JsonSyntaxError)
      throw newBadRequest(`couldn't get version/kind; json parse error: ${error.message}`);
    throw error;
  }
}
