/** Defines the stored types of the flow control group. */
import type {
  V1FlowSchemaSpec,
  V1FlowSchemaStatus,
  V1PriorityLevelConfigurationSpec,
  V1PriorityLevelConfigurationStatus,
} from '@kubernetes/client-node';
import type { Kind } from '../../../../api/kinds/wire.ts';

export type FlowSchema = Kind<{ spec: V1FlowSchemaSpec; status: V1FlowSchemaStatus }>;
export type PriorityLevel = Kind<{
  spec: V1PriorityLevelConfigurationSpec;
  status: V1PriorityLevelConfigurationStatus;
}>;
export type FlowSchemaSpec = NonNullable<FlowSchema['spec']>;
export type PriorityLevelSpec = NonNullable<PriorityLevel['spec']>;
