/** Closing of what was opened: the last first, each one whatever the others do. Used by `main.ts`. */
import type { Logger } from '../../api/component/logger.ts';

export type Closing = () => Promise<void> | void;

/** Empties the list. Never rejects: what fails is logged, so that it neither skips the rest nor hides why they close. */
export async function closeAll(opened: Closing[], logger: Logger): Promise<void> {
  for (const close of opened.splice(0).toReversed()) {
    try {
      await close();
    } catch (error) {
      logger.error({ err: error }, 'A part of the control plane could not be closed');
    }
  }
}
