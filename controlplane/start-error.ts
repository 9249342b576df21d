/** Why a start was refused: one line for a person, with what to do where that is known. The command exits with 1. */
export class StartError extends Error {
  override readonly name = 'StartError';
}
