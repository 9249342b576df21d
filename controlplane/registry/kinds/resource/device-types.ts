/** Defines the stored types of dynamic resource allocation. */
import type {
  ResourceV1ResourceClaim,
  V1DeviceClass,
  V1ResourceClaimTemplate,
  V1ResourceSlice,
  V1beta2DeviceTaintRule,
} from '@kubernetes/client-node';
import type { Kind } from '../../../../api/kinds/wire.ts';

export type ResourceClaim = Kind<Pick<ResourceV1ResourceClaim, 'spec' | 'status'>>;
export type ResourceClaimTemplate = Kind<Pick<V1ResourceClaimTemplate, 'spec'>>;
export type DeviceClass = Kind<Pick<V1DeviceClass, 'spec'>>;
export type ResourceSlice = Kind<Pick<V1ResourceSlice, 'spec'>>;
export type DeviceTaintRule = Kind<Pick<V1beta2DeviceTaintRule, 'spec' | 'status'>>;

export type ClaimSpec = NonNullable<ResourceClaim['spec']>;
export type DeviceClaim = NonNullable<ClaimSpec['devices']>;
export type DeviceRequest = NonNullable<DeviceClaim['requests']>[number];
export type ExactRequest = NonNullable<DeviceRequest['exactly']>;
export type SubRequest = NonNullable<DeviceRequest['firstAvailable']>[number];
export type DeviceConstraint = NonNullable<DeviceClaim['constraints']>[number];
export type ClaimConfiguration = NonNullable<DeviceClaim['config']>[number];
export type Selector = NonNullable<ExactRequest['selectors']>[number];
export type Toleration = NonNullable<ExactRequest['tolerations']>[number];
export type ClaimStatus = NonNullable<ResourceClaim['status']>;
export type Allocation = NonNullable<ClaimStatus['allocation']>;
export type AllocatedDevice = NonNullable<ClaimStatus['devices']>[number];
export type SliceSpec = NonNullable<ResourceSlice['spec']>;
export type Device = NonNullable<SliceSpec['devices']>[number];
export type Taint = NonNullable<Device['taints']>[number];
