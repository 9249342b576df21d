/**
 * Implements resource claims: creates the claims of pods from their templates, reserves allocated claims for pods that were
 * bound without the scheduler, and takes back reservations and allocations that no pod needs any more.
 */
import { CLAIM_FINALIZER } from '../../../api/kinds/device-claims.ts';
import { MAX_CONSUMERS } from '../../../api/kinds/device-limits.ts';
import { MAX_SUBDOMAIN_LENGTH } from '../../../api/meta/names.ts';
import { isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import { referenceTo } from '../../../api/client/event-recorder.ts';
import type { Informer } from '../../../api/client/informer.ts';
import type { Pod, ResourceClaim, ResourceClaimTemplate } from '../../../api/kinds/kinds.ts';
import { pods, resourceClaims, resourceClaimTemplates } from '../../../api/client/resources.ts';
import { ReconcileLoop, splitKey, type ControllerEnvironment, type RunController } from '../controller.ts';
import { controllerOf, controllerReference, indexByController, ownedBy } from '../owner-references.ts';
import { isPodFinished } from '../pod-state.ts';

const POD_CLAIM_NAME = 'resource.kubernetes.io/pod-claim-name';

type PodClaim = NonNullable<NonNullable<Pod['spec']>['resourceClaims']>[number];

/** Runs the controller. Pods and claims share one queue; the prefix of a key is `pod:` or `claim:`. */
export const runResourceClaims: RunController = (environment, signal) =>
  new ResourceClaimController(environment).run(signal);

class ResourceClaimController {
  readonly #environment: ControllerEnvironment;
  readonly #loop: ReconcileLoop;
  readonly #pods: Informer<Pod>;
  readonly #claims: Informer<ResourceClaim>;
  readonly #templates: Informer<ResourceClaimTemplate>;

  constructor(environment: ControllerEnvironment) {
    this.#environment = environment;
    this.#loop = new ReconcileLoop(environment, {
      workers: 4,
      reconcile: async (key) => {
        const at = key.indexOf(':');
        const { namespace, name } = splitKey(key.slice(at + 1));
        if (key.startsWith('pod:')) await this.#syncPod(namespace, name);
        else await this.#syncClaim(namespace, name);
      },
    });
    this.#pods = environment.informers.for(pods);
    this.#claims = environment.informers.for(resourceClaims);
    this.#templates = environment.informers.for(resourceClaimTemplates);
    indexByController(this.#claims);
  }

  run(signal: AbortSignal): Promise<void> {
    const podChanged = (pod: Pod): void => {
      const { namespace, name } = pod.metadata;
      if ((pod.spec?.resourceClaims ?? []).length > 0) this.#loop.queue.add(`pod:${namespace}/${name}`);
      // The scheduler creates and reserves the claim for extended resources.
      const extended = pod.status?.extendedResourceClaimStatus?.resourceClaimName ?? [];
      for (const claim of claimNames(pod).concat(extended)) this.#loop.queue.add(`claim:${namespace}/${claim}`);
    };
    const claimChanged = ({ metadata }: ResourceClaim): void => {
      this.#loop.queue.add(`claim:${metadata.namespace}/${metadata.name}`);
    };
    this.#pods.addHandler({ add: podChanged, update: (_, pod) => podChanged(pod), delete: podChanged });
    this.#claims.addHandler({
      add: claimChanged,
      update: (_, claim) => claimChanged(claim),
      delete: (claim) => {
        const owner = controllerOf(claim);
        if (owner?.kind === 'Pod') this.#loop.queue.add(`pod:${claim.metadata.namespace}/${owner.name}`);
      },
    });
    this.#templates.addHandler({
      add: ({ metadata }) => {
        for (const pod of this.#pods.list(metadata.namespace ?? ''))
          if (pod.spec?.resourceClaims?.some((claim) => claim.resourceClaimTemplateName === metadata.name) === true)
            podChanged(pod);
      },
    });
    return this.#loop.run(signal, this.#pods, this.#claims, this.#templates);
  }

  async #syncPod(namespace: string, name: string): Promise<void> {
    const pod = this.#pods.get(namespace, name);
    if (pod === undefined || pod.metadata.deletionTimestamp !== undefined || isPodFinished(pod)) return;
    const created = new Map<string, string>();
    for (const podClaim of pod.spec?.resourceClaims ?? []) {
      if (podClaim.resourceClaimTemplateName === undefined) continue;
      try {
        const claimName = await this.#ensureClaim(pod, podClaim, podClaim.resourceClaimTemplateName);
        if (claimName !== undefined) created.set(podClaim.name, claimName);
      } catch (error) {
        this.#environment.recorder.event(
          referenceTo(pod, pods),
          'Warning',
          'FailedResourceClaimCreation',
          `PodResourceClaim ${podClaim.name}: ${(error as Error).message}`,
        );
        throw error;
      }
    }
    if (created.size > 0) await this.#recordClaims(pod, created);
    if ((pod.spec?.nodeName ?? '') !== '') for (const claimName of claimNames(pod)) await this.#reserve(pod, claimName);
  }

  /**
   * Creates the claim of a template unless it exists. Resolves to its name if the status of the pod does not show it yet, and
   * otherwise to `undefined`.
   */
  async #ensureClaim(pod: Pod, podClaim: PodClaim, templateName: string): Promise<string | undefined> {
    const namespace = pod.metadata.namespace ?? '';
    const recorded = pod.status?.resourceClaimStatuses?.find(({ name }) => name === podClaim.name);
    const existing = ownedBy(this.#claims, pod).find(
      ({ metadata }) => metadata.annotations?.[POD_CLAIM_NAME] === podClaim.name,
    );
    if (existing !== undefined) {
      const { name = '' } = existing.metadata;
      return recorded?.resourceClaimName === name ? undefined : name;
    }
    if (recorded !== undefined && (await this.#exists(namespace, recorded.resourceClaimName))) return undefined;
    const template = this.#templates.get(namespace, templateName);
    if (template === undefined)
      throw new Error(
        `resource claim template "${templateName}": resourceclaimtemplate.resource.k8s.io "${templateName}" not found`,
      );
    const claim = await this.#environment.client.create(resourceClaims, namespace, claimFrom(template, pod, podClaim));
    return claim.metadata.name;
  }

  /**
   * Whether the claim exists, also by a request to the API server, because the informer may be behind. A claim that the pod
   * does not need has no name and counts as existing.
   */
  async #exists(namespace: string, name: string | undefined): Promise<boolean> {
    if (name === undefined || this.#claims.get(namespace, name) !== undefined) return true;
    return (await tolerate(this.#environment.client.get(resourceClaims, namespace, name), isNotFound)) !== undefined;
  }

  async #recordClaims(pod: Pod, created: ReadonlyMap<string, string>): Promise<void> {
    const otherStatuses = (pod.status?.resourceClaimStatuses ?? []).filter(({ name }) => !created.has(name));
    const resourceClaimStatuses = [
      ...otherStatuses,
      ...[...created].map(([name, resourceClaimName]) => ({ name, resourceClaimName })),
    ];
    const { namespace = '', name = '', uid } = pod.metadata;
    const patch = { metadata: { uid }, status: { resourceClaimStatuses } };
    await tolerate(
      this.#environment.client.patch(pods, namespace, name, { type: 'strategic', body: patch, subresource: 'status' }),
      isNotFound,
    );
  }

  /** Reserves a claim for a pod that was bound without the scheduler, which reserves claims itself. */
  async #reserve(pod: Pod, claimName: string): Promise<void> {
    const claim = this.#claims.get(pod.metadata.namespace ?? '', claimName);
    const reservedFor = claim?.status?.reservedFor ?? [];
    if (claim?.status?.allocation === undefined || reservedFor.length >= MAX_CONSUMERS) return;
    if (reservedFor.some(({ uid }) => uid === pod.metadata.uid)) return;
    const consumer = { resource: 'pods', name: pod.metadata.name ?? '', uid: pod.metadata.uid ?? '' };
    await this.#writeStatus(claim, { ...claim.status, reservedFor: [...reservedFor, consumer] });
  }

  async #syncClaim(namespace: string, name: string): Promise<void> {
    let claim = this.#claims.get(namespace, name);
    if (claim === undefined) return;
    const reservedFor = claim.status?.reservedFor ?? [];
    const valid: typeof reservedFor = [];
    for (const consumer of reservedFor) if (await this.#isNeeded(namespace, consumer)) valid.push(consumer);
    const isProtected = (claim.metadata.finalizers ?? []).includes(CLAIM_FINALIZER);
    if (valid.length < reservedFor.length) {
      const { reservedFor: _before, allocation, ...status } = claim.status ?? {};
      claim = await this.#writeStatus(claim, {
        ...status,
        ...(valid.length === 0 ? {} : { reservedFor: valid }),
        ...((valid.length === 0 && isProtected) || allocation === undefined ? {} : { allocation }),
      });
      if (isProtected && claim.status?.allocation === undefined) claim = await this.#removeFinalizer(claim);
    } else if (isProtected && claim.metadata.deletionTimestamp !== undefined && valid.length === 0) {
      const { allocation, ...status } = claim.status ?? {};
      if (allocation !== undefined) claim = await this.#writeStatus(claim, status);
      claim = await this.#removeFinalizer(claim);
    }
    if (valid.length === 0) await this.#deleteUnused(claim);
  }

  /**
   * Whether a pod with a reservation may still use the claim. A pod that the informer lacks is read from the API. Rejects for a
   * reservation that is not for a pod.
   */
  async #isNeeded(
    namespace: string,
    { apiGroup = '', resource, name, uid }: { apiGroup?: string; resource: string; name: string; uid: string },
  ): Promise<boolean> {
    if (apiGroup !== '' || resource !== 'pods')
      throw new Error(`unsupported ReservedFor entry: ${apiGroup}/${resource} ${name}`);
    const pod =
      this.#pods.get(namespace, name) ??
      (await tolerate(this.#environment.client.get(pods, namespace, name), isNotFound));
    return pod !== undefined && pod.metadata.uid === uid && !isPodDone(pod);
  }

  /** Deletes the claim of a pod that will not run any more: the pod itself may stay for long. */
  async #deleteUnused(claim: ResourceClaim): Promise<void> {
    const owner = controllerOf(claim);
    const { namespace = '', name = '', uid, deletionTimestamp } = claim.metadata;
    if (owner?.kind !== 'Pod' || deletionTimestamp !== undefined) return;
    const pod = this.#pods.get(namespace, owner.name);
    if (pod === undefined || (pod.metadata.uid === owner.uid && !isPodDone(pod))) return;
    const preconditions = uid === undefined ? {} : { preconditions: { uid } };
    await tolerate(this.#environment.client.delete(resourceClaims, namespace, name, preconditions), isNotFound);
  }

  #writeStatus(claim: ResourceClaim, status: NonNullable<ResourceClaim['status']>): Promise<ResourceClaim> {
    return this.#environment.client.update(resourceClaims, { ...claim, status }, { subresource: 'status' });
  }

  #removeFinalizer(claim: ResourceClaim): Promise<ResourceClaim> {
    const finalizers = (claim.metadata.finalizers ?? []).filter((finalizer) => finalizer !== CLAIM_FINALIZER);
    return this.#environment.client.update(resourceClaims, { ...claim, metadata: { ...claim.metadata, finalizers } });
  }
}

/** Returns the names of the claims of a pod that are known so far. */
function claimNames(pod: Pod): string[] {
  return (pod.spec?.resourceClaims ?? []).flatMap(({ name, resourceClaimName }) => {
    const found =
      resourceClaimName ?? pod.status?.resourceClaimStatuses?.find((status) => status.name === name)?.resourceClaimName;
    return found === undefined ? [] : [found];
  });
}

function claimFrom({ spec = { spec: {} } }: ResourceClaimTemplate, pod: Pod, { name }: PodClaim): ResourceClaim {
  const { labels, annotations } = spec.metadata ?? {};
  return {
    apiVersion: 'resource.k8s.io/v1',
    kind: 'ResourceClaim',
    metadata: {
      // The API server appends five characters to the dash.
      generateName: `${`${pod.metadata.name}-${name}`.slice(0, MAX_SUBDOMAIN_LENGTH - 6)}-`,
      namespace: pod.metadata.namespace ?? '',
      ...(labels === undefined ? {} : { labels: { ...labels } }),
      annotations: { ...annotations, [POD_CLAIM_NAME]: name },
      ownerReferences: [controllerReference(pod, pods)],
    },
    spec: structuredClone(spec.spec),
  };
}

/** Whether none of the pod's containers runs or ever will. */
function isPodDone(pod: Pod): boolean {
  return isPodFinished(pod) || (pod.metadata.deletionTimestamp !== undefined && (pod.spec?.nodeName ?? '') === '');
}
