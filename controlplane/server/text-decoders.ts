/** Bodies in JSON and YAML as values, with the reference's complaint where they are none. */
import { JsonSyntaxError, parseJson } from '../../api/codec/json.ts';
import { parseYaml, YamlSyntaxError } from '../../api/codec/yaml.ts';
import { newBadRequest } from '../../api/meta/status-error.ts';
import type { TextDecoders } from './body.ts';

export const textDecoders: TextDecoders = {
  json(text) {
    try {
      return parseJson(text);
    } catch (error) {
      if (!(error instanceof JsonSyntaxError)) throw error;
      throw newBadRequest(`couldn't get version/kind; json parse error: ${error.message}`);
    }
  },
  yaml(text) {
    try {
      return parseYaml(text);
    } catch (error) {
      if (!(error instanceof YamlSyntaxError)) throw error;
      throw newBadRequest(`couldn't get version/kind; json parse error: ${error.message}`);
    }
  },
};
