/**
 * Lists all kinds with their own strategy. A kind without a row has `genericStrategy`. The rows of a group are in one or
 * several files of `kinds/`.
 */
import type { KindOptions } from './kind-options.ts';
import { apiextensionsKinds } from './kinds/apiextensions/apiextensions.ts';
import { appsKinds } from './kinds/apps/apps.ts';
import { certificateKinds } from './kinds/certificates/certificates.ts';
import { batchKinds } from './kinds/batch/batch.ts';
import { coordinationKinds } from './kinds/coordination/coordination.ts';
import { networkingKinds } from './kinds/networking/networking.ts';
import { admissionRegistrationKinds } from './kinds/admissionregistration/admissionregistration.ts';
import { checkExpression } from './kinds/admissionregistration/expression-environment.ts';
import { deviceKinds } from './kinds/resource/devices.ts';
import { apiRegistrationKinds } from './kinds/apiregistration/apiregistration.ts';
import { flowControlKinds } from './kinds/flowcontrol/flowcontrol.ts';
import { nodeObjectKinds } from './kinds/core/nodes.ts';
import { nodeKinds } from './kinds/node/node.ts';
import { rbacKinds } from './kinds/rbac/rbac.ts';
import { coreObjectKinds } from './kinds/core/core-objects.ts';
import { eventKinds } from './kinds/core/events.ts';
import { endpointKinds } from './kinds/core/endpoints.ts';
import { limitKinds } from './kinds/core/limits.ts';
import { autoscalingKinds } from './kinds/autoscaling/autoscaling.ts';
import { claimKinds } from './kinds/core/persistent-volume-claims.ts';
import { volumeKinds } from './kinds/core/persistent-volumes.ts';
import { podKinds } from './kinds/core/pods.ts';
import { schedulingKinds } from './kinds/scheduling/scheduling.ts';
import { policyKinds } from './kinds/policy/policy.ts';
import { serviceKinds } from './kinds/core/services.ts';
import { storageKinds } from './kinds/storage/storage.ts';
import { storageMigrationKinds } from './kinds/storagemigration/storage-migrations.ts';
import type { KindRow } from './strategy.ts';

/** Returns the rows of all kinds with their own strategy, in no particular order. */
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
    ...schedulingKinds,
  ];
}
