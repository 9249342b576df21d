/** Closes the parts of the control plane in reverse order. A part that fails does not keep the others from closing. */
import type { Logger } from '../../api/component/logger.ts';

/** Closes one part; may be called once. */
export type Closing = () => Promise<void> | void;

/**
 * Empties the list. Never rejects: failures are logged, so that they neither skip other parts nor hide the cause of the
 * closing.
 */
export async function closeAll(opened: Closing[], logger: Logger): Promise<void> {
  for (const close of opened.splice(0).toReversed()) {
    try {
      await close();
    } catch (error) {
      logger.error({ err: error }, 'A part of the control plane could not be closed');
    }
  }
}
