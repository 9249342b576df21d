/** Reads a manifest as the API server would read a pod: decoding by the schema, defaults, validation. For the sources that are not the API. */
import { applyPodDefaults } from '../api/kinds/pod-defaults.ts';
import { validatePod } from '../api/kinds/pod-validation.ts';
import { invalid } from '../api/meta/field-error.ts';
import { DecodeError, decodeStruct, unknownFieldErrors } from '../api/schema/decode.ts';
import { applyTableDefaults } from '../api/schema/defaults.ts';
import { loadSchema } from '../api/schema/table.ts';
import type { Pod } from './core-types.ts';
import type { PodReader } from './podconfig/static-pod.ts';

export function createPodReader(): PodReader {
  const struct = loadSchema().kind('', 'v1', 'Pod');
  if (struct === undefined) throw new Error('the schema has no pods');
  return {
    read(value) {
      try {
        const decoded = decodeStruct(struct, value);
        applyTableDefaults(struct, decoded.value);
        const pod = decoded.value as unknown as Pod;
        pod.metadata ??= { name: '', namespace: '', uid: '' };
        applyPodDefaults(pod as never);
        const errors = validatePod(pod as never, { withMetadata: false });
        return { pod, warnings: unknownFieldErrors(decoded.unknown), errors };
      } catch (error) {
        if (!(error instanceof DecodeError)) throw error;
        return {
          pod: { metadata: { name: '', namespace: '', uid: '' }, spec: { containers: [] } } as unknown as Pod,
          warnings: [],
          errors: [invalid('', undefined, error.message)],
        };
      }
    },
  };
}
