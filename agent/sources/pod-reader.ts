/** Reads manifests of static pods as the API server reads a pod: decodes, defaults and validates them. */
import { applyPodDefaults } from '../../api/kinds/pod-defaults.ts';
import { validatePod } from '../../api/kinds/pod-validation.ts';
import { type FieldError, invalid, required } from '../../api/meta/field-error.ts';
import { dnsLabelErrors, dnsSubdomainErrors } from '../../api/meta/names.ts';
import { decodeStruct, unknownFieldErrors } from '../../api/schema/decode.ts';
import { applyTableDefaults } from '../../api/schema/defaults.ts';
import { loadSchema } from '../../api/schema/table.ts';
import type { Pod } from '../base/model/pod.ts';
import type { PodReader } from './static-pod.ts';

/** Creates the reader, and loads the schema of pods once. Throws if the schema has no pods, which is a bug. */
export function createPodReader(): PodReader {
  const struct = loadSchema().kind('', 'v1', 'Pod');
  if (struct === undefined) throw new Error('the schema has no pods');
  return {
    /**
     * Returns the pod with defaults, with a warning for each unknown field and the errors of the validation. Throws an error
     * that names the path if a value has the wrong type.
     */
    read(value) {
      const decoded = decodeStruct(struct, value);
      applyTableDefaults(struct, decoded.value);
      const pod = decoded.value as unknown as Pod;
      pod.metadata ??= { name: '', namespace: '', uid: '' };
      applyPodDefaults(pod as never);
      const errors = [...identityErrors(pod), ...validatePod(pod as never)];
      return { pod, warnings: unknownFieldErrors(decoded.unknown), errors };
    },
  };
}

const UID_RULE =
  'must consist of letters, digits, dots, dashes and underscores, begin with a letter or digit, and have at most 63 characters';

/** Validates names and uid, because the agent's directories are named after them: none may lead out of its directory. */
function identityErrors({ metadata: { name, namespace, uid } }: Pod): FieldError[] {
  const path = 'metadata.name';
  const nameErrors =
    (name ?? '') === ''
      ? [required(path, 'name or generateName is required')]
      : dnsSubdomainErrors(name).map((problem) => invalid(path, name, problem));
  return [
    ...nameErrors,
    ...dnsLabelErrors(namespace).map((problem) => invalid('metadata.namespace', namespace, problem)),
    ...(uid === '' || /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/.test(uid) ? [] : [invalid('metadata.uid', uid, UID_RULE)]),
  ];
}
