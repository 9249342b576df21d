/**
 * PodTolerationRestriction: adds a namespace's default tolerations to its pods, and limits their tolerations to its whitelist.
 * Each is an annotation of the namespace, or else from the plugin's configuration. Off by default.
 */
import { parseExactJson } from '../../../api/codec/json.ts';
import type { Namespace } from '../../../api/kinds/kinds.ts';
import { namespaces } from '../../../api/client/resources.ts';
import { qosClassOf } from '../../../api/kinds/pod-qos.ts';
import { ownMember } from '../../../api/meta/own-member.ts';
import { newInternalError } from '../../../api/meta/status-error.ts';
import { podOf, refusal } from './pod-attributes.ts';
import { isSuperset, mergeTolerations, type Toleration } from './tolerations.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './admission.ts';
import type { Listers } from '../../model/listers.ts';
import { MEMORY_PRESSURE_TAINT } from '../../../api/meta/well-known-labels.ts';

const DEFAULTS = 'scheduler.alpha.kubernetes.io/defaultTolerations';
const WHITELIST = 'scheduler.alpha.kubernetes.io/tolerationsWhitelist';

/** The cluster-wide part of the plugin's configuration. */
export interface PodTolerationRestrictionOptions {
  /** The defaults for namespaces without their annotation. */
  readonly clusterDefaults: readonly Toleration[];
  /** The whitelist for namespaces without its annotation. An empty one allows all tolerations. */
  readonly clusterWhitelist: readonly Toleration[];
}

/**
 * Creates the plugin. It adds the toleration of memory pressure to new and updated pods that are not BestEffort. It refuses
 * pods with a toleration that the whitelist does not cover, and with 500 if an annotation is invalid.
 */
export function podTolerationRestriction(listers: Listers, options: PodTolerationRestrictionOptions): AdmissionPlugin {
  const lister = listers.of(namespaces);
  const namespaceOf = async ({ namespace }: AdmissionAttributes): Promise<Namespace | undefined> =>
    lister.get('', namespace) ?? (await lister.live('', namespace));
  return {
    name: 'PodTolerationRestriction',
    handles: (operation) => operation === 'CREATE' || operation === 'UPDATE',
    async admit(attributes) {
      const pod = podOf(attributes);
      if (pod === undefined) return;
      const added: Toleration[] = [];
      if (attributes.operation === 'CREATE')
        added.push(...(listOf(await namespaceOf(attributes), DEFAULTS) ?? options.clusterDefaults));
      if (qosClassOf(pod.spec) !== 'BestEffort')
        added.push({ key: MEMORY_PRESSURE_TAINT, operator: 'Exists', effect: 'NoSchedule' });
      if (added.length > 0) pod.spec.tolerations = mergeTolerations(pod.spec.tolerations ?? [], added);
    },
    async validate(attributes) {
      const pod = podOf(attributes);
      if (pod === undefined) return;
      const ownWhitelist = listOf(await namespaceOf(attributes), WHITELIST);
      const whitelist = ownWhitelist ?? options.clusterWhitelist;
      if (whitelist.length === 0) return;
      const isAllowed = (one: Toleration): boolean => whitelist.some((allowed) => isSuperset(allowed, one));
      if ((pod.spec.tolerations ?? []).every(isAllowed)) return;
      const scope = ownWhitelist === undefined ? 'cluster' : 'namespace';
      throw refusal(
        attributes,
        `pod tolerations (possibly merged with namespace default tolerations) conflict with its ${scope} whitelist`,
      );
    },
  };
}

/** Reads the tolerations of an annotation, and returns `undefined` if the namespace does not have it. */
function listOf(namespace: Namespace | undefined, annotation: string): readonly Toleration[] | undefined {
  const text = ownMember(namespace?.metadata.annotations, annotation);
  if (text === undefined) return undefined;
  if (text === '') return [];
  try {
    return parseExactJson(text) as Toleration[];
  } catch (error) {
    throw newInternalError(
      `annotation ${annotation} of namespace ${namespace?.metadata.name} is not valid JSON`,
      error,
    );
  }
}
