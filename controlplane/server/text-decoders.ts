/** Bodies in JSON and YAML as values. */
import { parseJson } from '../../api/codec/json.ts';
import { parseYaml } from '../../api/codec/yaml.ts';
import type { TextDecoders } from './body.ts';

export const textDecoders: TextDecoders = { json: parseJson, yaml: parseYaml };
