/** Defines the types of jobs, which their strategy and their validation share. */
import type { V1JobSpec, V1JobStatus } from '@kubernetes/client-node';
import type { PodTemplate } from '../../../../api/kinds/pod-types.ts';
import type { Wire } from '../../../../api/kinds/wire.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';

export type JobStatus = Wire<V1JobStatus>;
export type JobSpec = Omit<Wire<V1JobSpec>, 'template'> & { template?: PodTemplate };

export type Job = KubeObject & { spec?: JobSpec; status?: JobStatus };
