/** Defines the types of events, which their strategy, their validation and their columns share. */
import type { KubeObject } from '../../../../api/meta/object.ts';

/** The object that an event is about. */
export interface Reference {
  kind?: string;
  namespace?: string;
  name?: string;
  uid?: string;
  apiVersion?: string;
  resourceVersion?: string;
  fieldPath?: string;
}

/** A core event. The fields of `events.k8s.io` are converted to it. */
export interface Event extends KubeObject {
  involvedObject?: Reference;
  reason?: string;
  message?: string;
  source?: { component?: string; host?: string };
  firstTimestamp?: string;
  lastTimestamp?: string;
  count?: number;
  type?: string;
  eventTime?: string | null;
  series?: { count?: number; lastObservedTime?: string };
  action?: string;
  related?: Reference;
  reportingComponent?: string;
  reportingInstance?: string;
}
