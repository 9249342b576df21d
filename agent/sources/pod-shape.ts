/**
 * Gives pods of all sources the shape that the agent relies on, because neither servers nor files are trusted to send valid
 * pods.
 */
import { pods } from '../../api/client/resources.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import { shapedObject } from '../../api/schema/shape.ts';
import { SOURCE_ANNOTATION } from '../../api/kinds/pod-annotations.ts';
import type { Pod } from '../base/model/pod.ts';
import { identityFault } from './pod-identity.ts';
import type { PodSourceName } from './pod-source.ts';

/** A pod that the agent can run, or why it cannot, with what is known of its identity. */
export type ShapedPod = { readonly pod: Pod } | { readonly fault: string; readonly name: string; readonly uid: string };

const MAX_FAULT_CHARACTERS = 1024;

/**
 * Returns a copy of the pod with `source` in the annotation of the source, because clients can write the annotation: a pod of
 * the API server that counted as static would be critical to its node. Fields that the schema lacks are left out, as in the
 * kubelet. For a value of another shape, or with names that cannot be parts of paths, returns the fault.
 */
export function shapedPod(value: unknown, source: PodSourceName): ShapedPod {
  let pod: Pod;
  try {
    pod = shapedObject(pods, value) as unknown as Pod;
  } catch (error) {
    return unusable(value, errorMessage(error));
  }
  pod.metadata.annotations = { ...pod.metadata.annotations, [SOURCE_ANNOTATION]: source };
  const fault = identityFault(pod);
  return fault === '' ? { pod } : unusable(value, fault);
}

function unusable(value: unknown, fault: string): ShapedPod {
  const { metadata } = value as { readonly metadata?: Readonly<Record<string, unknown>> | null };
  const text = (field: string): string => (typeof metadata?.[field] === 'string' ? cut(metadata[field]) : '');
  return { fault: cut(fault), name: `${text('namespace')}/${text('name')}`, uid: text('uid') };
}

const cut = (text: string): string =>
  text.length <= MAX_FAULT_CHARACTERS ? text : `${text.slice(0, MAX_FAULT_CHARACTERS)}…`;
