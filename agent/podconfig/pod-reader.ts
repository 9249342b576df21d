/** Reads static pods as the API server reads pods: by the schema, with its defaults and validation. */
import { applyPodDefaults } from '../../api/kinds/pod-defaults.ts';
import { validatePod } from '../../api/kinds/pod-validation.ts';
import { podWarnings } from '../../api/kinds/pod-warnings.ts';
import { decodeStruct } from '../../api/schema/decode.ts';
import { applyTableDefaults } from '../../api/schema/defaults.ts';
import { loadSchema } from '../../api/schema/table.ts';
import type { Pod } from '../core-types.ts';
import type { PodReader } from './static-pod.ts';

/** The schema is loaded with the first manifest. */
export function createPodReader(): PodReader {
  return {
    read(value) {
      const struct = loadSchema().kind('', 'v1', 'Pod');
      if (struct === undefined) throw new Error('the schema has no Pod');
      const decoded = decodeStruct(struct, value);
      applyTableDefaults(struct, decoded.value);
      const object = decoded.value as unknown as Parameters<typeof applyPodDefaults>[0];
      applyPodDefaults(object);
      const errors = validatePod(object, { withMetadata: true });
      const warnings = [
        ...decoded.unknown.map((field) => `unknown field "${field}"`),
        ...podWarnings(object.metadata, object.spec ?? { containers: [] }),
      ];
      return { pod: { ...object, status: { phase: 'Pending' } } as unknown as Pod, warnings, errors };
    },
  };
}
