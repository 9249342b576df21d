/** Defines the stored types of the networking group. */
import type {
  V1IngressClassSpec,
  V1IngressSpec,
  V1IngressStatus,
  V1IPAddressSpec,
  V1NetworkPolicySpec,
  V1ServiceCIDRSpec,
  V1ServiceCIDRStatus,
} from '@kubernetes/client-node';
import type { Kind } from '../../../../api/kinds/wire.ts';

export type Ingress = Kind<{ spec: V1IngressSpec; status: V1IngressStatus }>;
export type IngressClass = Kind<{ spec: V1IngressClassSpec }>;
export type NetworkPolicy = Kind<{ spec: V1NetworkPolicySpec }>;
export type IpAddress = Kind<{ spec: V1IPAddressSpec }>;
export type ServiceCidr = Kind<{ spec: V1ServiceCIDRSpec; status: V1ServiceCIDRStatus }>;
