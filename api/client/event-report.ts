/** Defines an event that a component reports about an object, and the interface of the recorders that send it. */

export type EventType = 'Normal' | 'Warning';

/** The object that an event is about, as far as it is known. */
export interface ObjectReference {
  readonly apiVersion?: string;
  readonly kind?: string;
  readonly namespace?: string;
  readonly name?: string;
  readonly uid?: string;
  readonly resourceVersion?: string;
  readonly fieldPath?: string;
}

/** The optional parts of an event. */
export interface EventOptions {
  readonly annotations?: Readonly<Record<string, string>>;
  /** The action that was taken, in UpperCamelCase. The recorder of core/v1 events leaves it out. */
  readonly action?: string;
}

/** Records events. `reason` is one word in UpperCamelCase, `message` is for people. */
export interface EventRecorder {
  event(regarding: ObjectReference, type: EventType, reason: string, message: string, options?: EventOptions): void;
}
