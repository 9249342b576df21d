/** Decodes bodies in JSON and YAML to values. */
import { parseJson, setMember } from '../../api/codec/json.ts';
import { parseYaml } from '../../api/codec/yaml.ts';
import type { JsonObject, JsonValue } from '../../api/meta/object.ts';
import type { TextDecoders } from './body.ts';

export const textDecoders: TextDecoders = {
  json: parseJson,
  yaml(text) {
    const { value, duplicates } = parseYaml(text);
    return { value: inKeyOrder(value), duplicates };
  },
};

/** kube-apiserver converts YAML to JSON with sorted keys before it decodes it, so errors have that order. */
function inKeyOrder(value: JsonValue): JsonValue {
  if (Array.isArray(value)) return value.map(inKeyOrder);
  if (typeof value !== 'object' || value === null) return value;
  const sorted: JsonObject = {};
  for (const key of Object.keys(value).sort()) setMember(sorted, key, inKeyOrder(value[key] ?? null));
  return sorted;
}
