/** Defines an event that a component reports about an object, and the interface of the recorders that send it. */

export type EventType = 'Normal' | 'Warning';

export interface ObjectReference {
  readonly apiVersion?: string;
  readonly kind?: string;
  readonly namespace?: string;
  readonly name?: string;
  readonly uid?: string;
  readonly resourceVersion?: string;
  readonly fieldPath?: string;
}

export interface EventOptions {
  readonly annotations?: Readonly<Record<string, string>>;
  /** The action that was taken, in UpperCamelCase. Only events of events.k8s.io have it. */
  readonly action?: string;
  readonly related?: ObjectReference;
}

export interface EventRecorder {
  event(regarding: ObjectReference, type: EventType, reason: string, message: string, options?: EventOptions): void;
}
