/** Decodes bodies in JSON and YAML to values. */
import { parseJson } from '../../api/codec/json.ts';
import type { YamlParser } from '../../api/codec/yaml-thread.ts';
import type { TextDecoders } from './body.ts';

/** Creates the decoders. JSON is decoded at once, and YAML by the parser, whose worker thread takes large texts. */
export function createTextDecoders(yaml: YamlParser): TextDecoders {
  return {
    json: (bytes) => parseJson(bytes.toString('utf8')),
    // kube-apiserver converts YAML to JSON with sorted keys before it decodes it, so errors have that order.
    yaml: (bytes, signal) => yaml.first(bytes, { sorted: true, signal }),
  };
}
