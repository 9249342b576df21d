/**
 * Holds the health checks of the start, by the names that kube-apiserver has and that probes use. Each belongs to a step of the
 * start and fails until that step is done.
 */
import type { HealthCheck } from '../model/health-check.ts';

/** Steps of the start, in their order. */
type StartStep = 'admission' | 'definitions' | 'bootstrap' | 'aggregation' | 'loops';

/** The hooks in kube-apiserver's order. */
const HOOKS: readonly (readonly [string, StartStep])[] = [
  ['poststarthook/start-apiserver-admission-initializer', 'admission'],
  ['poststarthook/generic-apiserver-start-informers', 'admission'],
  ['poststarthook/priority-and-fairness-config-consumer', 'bootstrap'],
  ['poststarthook/priority-and-fairness-filter', 'bootstrap'],
  ['poststarthook/storage-object-count-tracker-hook', 'admission'],
  ['poststarthook/start-apiextensions-informers', 'definitions'],
  ['poststarthook/start-apiextensions-controllers', 'definitions'],
  ['poststarthook/crd-informer-synced', 'definitions'],
  ['poststarthook/start-system-namespaces-controller', 'bootstrap'],
  ['poststarthook/peer-endpoint-reconciler-controller', 'loops'],
  ['poststarthook/start-cluster-authentication-info-controller', 'loops'],
  ['poststarthook/start-kube-apiserver-identity-lease-controller', 'loops'],
  ['poststarthook/start-kube-apiserver-identity-lease-garbage-collector', 'loops'],
  ['poststarthook/storage-readiness', 'admission'],
  ['poststarthook/start-legacy-token-tracking-controller', 'bootstrap'],
  ['poststarthook/start-service-ip-repair-controllers', 'loops'],
  ['poststarthook/rbac/bootstrap-roles', 'bootstrap'],
  ['poststarthook/scheduling/bootstrap-system-priority-classes', 'bootstrap'],
  ['poststarthook/priority-and-fairness-config-producer', 'bootstrap'],
  ['poststarthook/bootstrap-controller', 'loops'],
  ['poststarthook/start-kubernetes-service-cidr-controller', 'bootstrap'],
  ['poststarthook/start-kube-aggregator-informers', 'aggregation'],
  ['poststarthook/apiservice-status-local-available-controller', 'aggregation'],
  ['poststarthook/apiservice-status-remote-available-controller', 'aggregation'],
  ['poststarthook/apiservice-registration-controller', 'aggregation'],
  ['poststarthook/apiservice-wait-for-first-sync', 'aggregation'],
  ['poststarthook/apiservice-discovery-controller', 'aggregation'],
  ['poststarthook/kube-apiserver-autoregistration', 'aggregation'],
  ['autoregister-completion', 'aggregation'],
  ['poststarthook/apiservice-openapi-controller', 'aggregation'],
  ['poststarthook/apiservice-openapiv3-controller', 'aggregation'],
];

/** The checks of the steps of the start. Each throws `not finished` until its step is done. */
export class StartHooks {
  readonly #done = new Set<StartStep>();
  readonly checks: readonly HealthCheck[] = HOOKS.map(([name, step]) => ({
    name,
    check: () => {
      if (!this.#done.has(step)) throw new Error('not finished');
    },
  }));

  /** Makes the check of a step succeed. */
  done(step: StartStep): void {
    this.#done.add(step);
  }
}
