/**
 * All kinds that say something of their own, one row each. A kind without a row gets `genericStrategy`.
 * Rows of a group stand in one or several files of `kinds/`.
 */
import type { Clock } from '../../api/machinery/clock.ts';
import { apiextensionsKinds } from './kinds/apiextensions.ts';
import { appsKinds } from './kinds/apps.ts';
import { certificateKinds } from './kinds/certificates.ts';
import { batchKinds } from './kinds/batch.ts';
import { coordinationKinds } from './kinds/coordination.ts';
import { networkingKinds } from './kinds/networking.ts';
import { admissionRegistrationKinds } from './kinds/admissionregistration.ts';
import { checkExpression } from './kinds/expression-environment.ts';
import { deviceKinds } from './kinds/devices.ts';
import { apiRegistrationKinds } from './kinds/apiregistration.ts';
import { flowControlKinds } from './kinds/flowcontrol.ts';
import { nodeObjectKinds } from './kinds/nodes.ts';
import { nodeKinds } from './kinds/node.ts';
import { rbacKinds } from './kinds/rbac.ts';
import { coreObjectKinds } from './kinds/core-objects.ts';
import { eventKinds } from './kinds/events.ts';
import { endpointKinds } from './kinds/endpoints.ts';
import { limitKinds } from './kinds/limits.ts';
import { autoscalingKinds } from './kinds/autoscaling.ts';
import { claimKinds } from './kinds/persistent-volume-claims.ts';
import { volumeKinds } from './kinds/persistent-volumes.ts';
import { podKinds } from './kinds/pods.ts';
import { policyKinds } from './kinds/policy.ts';
import { serviceKinds } from './kinds/services.ts';
import { storageKinds } from './kinds/storage.ts';
import { storageMigrationKinds } from './kinds/storage-migrations.ts';
import type { Store } from './store.ts';
import type { KindRow } from './strategy.ts';

/** What kinds need beyond the objects themselves. */
export interface KindOptions {
  readonly clock: Clock;
  /** `--service-cluster-ip-range`: one range, or one of each family. */
  readonly serviceClusterCidrs: readonly string[];
  /** `--service-node-port-range`. */
  readonly serviceNodePorts: { readonly from: number; readonly to: number };
  /** `--event-ttl`. */
  readonly eventTtlMs: number;
  /** Other kinds' objects. Filled when all stores are open; not to be asked before the first request. */
  readonly stores: { get(group: string, resource: string): Store };
}

export function kindRows(options: KindOptions): KindRow[] {
  return [
    ...apiextensionsKinds,
    ...certificateKinds,
    ...coreObjectKinds,
    ...nodeObjectKinds,
    ...podKinds,
    ...limitKinds,
    ...endpointKinds,
    ...serviceKinds(options),
    ...eventKinds(options),
    ...appsKinds,
    ...batchKinds,
    ...coordinationKinds,
    ...networkingKinds,
    ...nodeKinds,
    ...admissionRegistrationKinds(checkExpression),
    ...deviceKinds(checkExpression, options),
    ...flowControlKinds,
    ...apiRegistrationKinds,
    ...rbacKinds,
    ...claimKinds,
    ...volumeKinds,
    ...storageKinds,
    ...storageMigrationKinds,
    ...autoscalingKinds,
    ...policyKinds,
  ];
}
