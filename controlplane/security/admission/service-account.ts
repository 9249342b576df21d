/**
 * ServiceAccount: sets the service account of a pod, which must exist, and mounts its token, the cluster's CA and the namespace
 * as a projected volume, unless the pod or the account disables that. A pod without image pull secrets gets those of the
 * account. An account can restrict its pods to the secrets that it lists.
 */
import { stringifyJson } from '../../../api/codec/json.ts';
import { quoteText } from '../../../api/meta/quote.ts';
import type { Pod, ServiceAccount } from '../../../api/kinds/kinds.ts';
import { serviceAccounts } from '../../../api/client/resources.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { randomSuffix, requestNameFault } from '../../../api/meta/names.ts';
import { podReferences } from '../authorization/pod-references.ts';
import { podOf, isPod, refusal, type PodSpec } from './pod-attributes.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './admission.ts';
import type { Lister, Listers } from '../../model/listers.ts';
import { MIRROR_ANNOTATION } from '../../../api/kinds/pod-annotations.ts';
import { ENFORCE_MOUNTABLE_ANNOTATION } from '../../../api/meta/well-known-labels.ts';

const MOUNT_PATH = '/var/run/secrets/kubernetes.io/serviceaccount';
/** Matches the texts that Go's `strconv.ParseBool` takes for true. */
const TRUE = /^(?:1|t|T|true|TRUE|True)$/;
/**
 * An hour and seven seconds: kube-apiserver extends tokens with exactly this lifetime (`WarnOnlyBoundTokenExpirationPeriod`).
 */
const TOKEN_SECONDS = 3607;
/**
 * The number of retries for a missing `default`. The controller creates it shortly after the namespace, so a pod that arrives
 * before waits for it.
 */
const LOOKUP_RETRIES = 10;
const LOOKUP_PAUSE_MS = 100;

/** Creates the plugin. */
export function serviceAccountPlugin(listers: Listers, clock: Clock): AdmissionPlugin {
  const lookup: Lookup = { lister: listers.of(serviceAccounts), clock };
  return {
    name: 'ServiceAccount',
    handles: (operation) => operation === 'CREATE' || operation === 'UPDATE',
    async admit(attributes, signal) {
      if (attributes.operation !== 'CREATE') return;
      const pod = podOf(attributes);
      if (pod === undefined) return;
      if (pod.metadata.annotations?.[MIRROR_ANNOTATION] !== undefined) {
        // Mirror pods are never changed; forbidden fields are refused before any other check.
        if (pod.spec !== undefined) checkMirrorPod(attributes, pod);
        return;
      }
      const { spec } = pod;
      if ((spec.serviceAccountName ?? '') === '') spec.serviceAccountName = 'default';
      const account = await accountOf(attributes, spec.serviceAccountName ?? '', lookup, signal);
      const mounts = spec.automountServiceAccountToken ?? account.automountServiceAccountToken ?? true;
      if (mounts) mountToken(spec);
      if ((spec.imagePullSecrets?.length ?? 0) === 0 && (account.imagePullSecrets?.length ?? 0) > 0) {
        spec.imagePullSecrets = (account.imagePullSecrets ?? []).map((reference) => ({ ...reference }));
      }
      // The deprecated alias of the field has the same value.
      if (spec.serviceAccount === undefined || spec.serviceAccount !== spec.serviceAccountName)
        spec.serviceAccount = spec.serviceAccountName ?? '';
    },
    async validate(attributes, signal) {
      if (!isPod(attributes)) return;
      const pod = attributes.object as Pod | undefined;
      if (pod?.spec === undefined) return;
      if (attributes.operation === 'UPDATE') {
        // Only ephemeral containers can add references to a running pod.
        if (attributes.subresource !== 'ephemeralcontainers') return;
      } else if (attributes.subresource !== '') return;
      if (pod.metadata.annotations?.[MIRROR_ANNOTATION] !== undefined) {
        if (attributes.operation === 'CREATE') checkMirrorPod(attributes, pod);
        return;
      }
      const account = await accountOf(attributes, pod.spec.serviceAccountName ?? '', lookup, signal);
      if (TRUE.test(account.metadata.annotations?.[ENFORCE_MOUNTABLE_ANNOTATION] ?? ''))
        checkMountable(attributes, pod.spec, account);
    },
  };
}

interface Lookup {
  readonly lister: Lister<ServiceAccount>;
  readonly clock: Clock;
}

/**
 * Resolves to the account of a name. Waits for the account `default`. Throws a 403 for a missing account, and for a name that
 * no account can have.
 */
async function accountOf(
  attributes: AdmissionAttributes,
  name: string,
  { lister, clock }: Lookup,
  signal: AbortSignal,
): Promise<ServiceAccount> {
  const { namespace } = attributes;
  const fault = requestNameFault(name);
  if (fault !== undefined) throw refusal(attributes, `error looking up service account ${namespace}/${name}: ${fault}`);
  for (let attempt = 0; ; attempt++) {
    const found = lister.get(namespace, name) ?? (await lister.live(namespace, name));
    if (found !== undefined) return found;
    if (name !== 'default' || attempt >= LOOKUP_RETRIES) {
      throw refusal(
        attributes,
        `error looking up service account ${namespace}/${name}: serviceaccount ${quoteText(name)} not found`,
      );
    }
    await clock.sleep(LOOKUP_PAUSE_MS, signal);
  }
}

function mountToken(spec: PodSpec): void {
  const volumes = spec.volumes ?? [];
  let name = volumes.find((volume) => volume.name.startsWith('kube-api-access-'))?.name;
  let isNeeded = false;
  const isNew = name === undefined;
  name ??= `kube-api-access-${randomSuffix(5)}`;
  for (const list of [spec.initContainers, spec.containers]) {
    for (const container of list ?? []) {
      const mounts = container.volumeMounts ?? [];
      if (mounts.some((mount) => mount.mountPath === MOUNT_PATH)) continue;
      container.volumeMounts = [...mounts, { name, readOnly: true, mountPath: MOUNT_PATH }];
      isNeeded = true;
    }
  }
  if (isNeeded && isNew) spec.volumes = [...volumes, { name, projected: tokenProjection() }];
}

function tokenProjection(): NonNullable<NonNullable<PodSpec['volumes']>[number]['projected']> {
  return {
    sources: [
      { serviceAccountToken: { expirationSeconds: TOKEN_SECONDS, path: 'token' } },
      { configMap: { name: 'kube-root-ca.crt', items: [{ key: 'ca.crt', path: 'ca.crt' }] } },
      {
        downwardAPI: {
          items: [{ path: 'namespace', fieldRef: { apiVersion: 'v1', fieldPath: 'metadata.namespace' } }],
        },
      },
    ],
    defaultMode: 0o644,
  };
}

/** Throws if a mirror pod refers to a service account or its tokens, or to secrets, which a static pod cannot use. */
function checkMirrorPod(attributes: AdmissionAttributes, pod: Pod): void {
  if ((pod.spec?.serviceAccountName ?? '') !== '')
    throw refusal(attributes, 'a mirror pod may not reference service accounts');
  const references = podReferences(pod);
  if (references.secrets.size > 0) throw refusal(attributes, 'a mirror pod may not reference secrets');
  for (const volume of pod.spec?.volumes ?? []) {
    const projectsToken = volume.projected?.sources?.some(
      (one) => one.serviceAccountToken !== undefined && one.serviceAccountToken !== null,
    );
    if (projectsToken === true)
      throw refusal(attributes, 'a mirror pod may not use ServiceAccountToken volume projections');
  }
}

function checkMountable(attributes: AdmissionAttributes, spec: PodSpec, account: ServiceAccount): void {
  const secrets = new Set((account.secrets ?? []).map((reference) => reference.name));
  const name = account.metadata.name;
  const refuse = (what: string): never => {
    throw refusal(attributes, `${what} is not allowed because service account ${name} does not reference that secret`);
  };
  if (attributes.subresource === '') {
    for (const volume of spec.volumes ?? []) {
      const secret = volume.secret?.secretName ?? '';
      if (secret !== '' && !secrets.has(secret)) refuse(`volume with secret.secretName=${quoteText(secret)}`);
    }
  }
  const kinds = [
    ['init container', spec.initContainers],
    ['container', spec.containers],
    ['ephemeral container', spec.ephemeralContainers],
  ] as const;
  for (const [kind, list] of kinds) {
    for (const container of list ?? []) {
      for (const variable of container.env ?? []) {
        const secret = variable.valueFrom?.secretKeyRef?.name ?? '';
        if (secret !== '' && !secrets.has(secret)) {
          refuse(
            `${kind} ${container.name} with envVar ${variable.name} referencing secret.secretName=${quoteText(secret)}`,
          );
        }
      }
      for (const from of container.envFrom ?? []) {
        const secret = from.secretRef?.name ?? '';
        if (secret !== '' && !secrets.has(secret)) {
          refuse(`${kind} ${container.name} with envFrom referencing secret.secretName=${quoteText(secret)}`);
        }
      }
    }
  }
  const pulls = new Set((account.imagePullSecrets ?? []).map((reference) => reference.name));
  for (const [i, reference] of (spec.imagePullSecrets ?? []).entries()) {
    if (pulls.has(reference.name)) continue;
    throw refusal(
      attributes,
      `imagePullSecrets[${i}].name=${stringifyJson(reference.name)} is not allowed because service account ${name} does not reference that imagePullSecret`,
    );
  }
}
