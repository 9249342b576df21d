/** Combines the results of the first phases of the start, which the last one uses. */
import type { AdmissionPhase } from './admission.ts';
import type { ReadersPhase } from './readers.ts';
import type { SecurityPhase } from './security.ts';
import type { Setting } from './setting.ts';
import type { StoresPhase } from './stores.ts';

/** Everything that the server and the loops use. */
export type Parts = Setting & StoresPhase & ReadersPhase & SecurityPhase & AdmissionPhase;
