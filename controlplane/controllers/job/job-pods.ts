/** Builds the pods of a job from its template. Pure. */
import type { Job, Pod } from '../../../api/kinds/kinds.ts';
import { jobs } from '../../../api/client/resources.ts';
import { initAndMainContainers } from '../../../api/kinds/pod-containers.ts';
import { podFromTemplate } from '../pod-control.ts';
import {
  COMPLETION_INDEX,
  INDEX_FAILURES,
  INDEX_IGNORED_FAILURES,
  type IndexFailures,
  TRACKING_FINALIZER,
} from './job-core.ts';

/** The maximum length of a `generateName`, to which the API server appends five random characters. */
const LONGEST_PREFIX = 58;

/**
 * Builds a pod of a job. `index` is the pod's index in an indexed job. `failures` are the failures of this index so far, if
 * each index has a back-off limit of its own.
 */
export function podForJob(job: Job, index?: number, failures?: Pick<IndexFailures, 'counted' | 'ignored'>): Pod {
  const template = structuredClone(job.spec?.template ?? {});
  template.metadata = {
    ...template.metadata,
    finalizers: [...(template.metadata?.finalizers ?? []), TRACKING_FINALIZER],
  };
  if (index === undefined) return podFromTemplate(template, job, jobs);
  const text = String(index);
  template.metadata.annotations = {
    ...template.metadata.annotations,
    [COMPLETION_INDEX]: text,
    ...(failures === undefined ? {} : { [INDEX_FAILURES]: String(failures.counted) }),
    ...(failures === undefined || failures.ignored === 0 ? {} : { [INDEX_IGNORED_FAILURES]: String(failures.ignored) }),
  };
  template.metadata.labels = { ...template.metadata.labels, [COMPLETION_INDEX]: text };
  for (const container of initAndMainContainers(template.spec)) {
    if (container.env?.some(({ name }) => name === 'JOB_COMPLETION_INDEX') === true) continue;
    const fieldRef = { fieldPath: `metadata.labels['${COMPLETION_INDEX}']` };
    container.env = [...(container.env ?? []), { name: 'JOB_COMPLETION_INDEX', valueFrom: { fieldRef } }];
  }
  const pod = podFromTemplate(template, job, jobs);
  const { name = '' } = job.metadata;
  // The API server cuts longer prefixes at their end, where the index is.
  const suffix = `-${text}-`;
  pod.metadata.generateName = `${name.slice(0, LONGEST_PREFIX - suffix.length)}${suffix}`;
  if (pod.spec !== undefined) pod.spec.hostname = `${name}-${text}`;
  return pod;
}
