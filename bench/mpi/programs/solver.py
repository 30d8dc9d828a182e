"""Solves the Laplace equation on a square grid that PETSc distributes, by the solver of -ksp_type.

Options of its own: -side, points of a side of the grid; -solves, the number of solutions; -limit, the most
iterations of each.
"""

import sys
from time import perf_counter

import petsc4py

petsc4py.init(sys.argv)
from petsc4py import PETSc  # noqa: E402

options = PETSc.Options()
side = options.getInt("side", 64)
grid = PETSc.DMDA().create([side, side], stencil_width=1)
matrix = grid.createMatrix()
matrix.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
(first_x, last_x), (first_y, last_y) = grid.getRanges()
row, column = PETSc.Mat.Stencil(), PETSc.Mat.Stencil()
for y in range(first_y, last_y):
    for x in range(first_x, last_x):
        row.index = (x, y)
        for index, value in [
            ((x, y), 4.0),
            ((x - 1, y), -1.0),
            ((x + 1, y), -1.0),
            ((x, y - 1), -1.0),
            ((x, y + 1), -1.0),
        ]:
            if 0 <= index[0] < side and 0 <= index[1] < side:
                column.index = index
                matrix.setValueStencil(row, column, value)
matrix.assemble()
right, solution = matrix.createVecs()
right.set(1.0)
solver = PETSc.KSP().create()
solver.setOperators(matrix)
solver.getPC().setType("jacobi")
solver.setTolerances(rtol=1e-8, max_it=options.getInt("limit", 300))
solver.setFromOptions()
begun = perf_counter()
for _ in range(options.getInt("solves", 1)):
    solution.set(0.0)
    solver.solve(right, solution)
PETSc.COMM_WORLD.barrier()
seconds = perf_counter() - begun
residual = right.duplicate()
matrix.mult(solution, residual)
residual.axpy(-1.0, right)
norms = solution.norm(), residual.norm()
if PETSc.COMM_WORLD.rank == 0:
    print("seconds", seconds)
    print("solved", solver.getIterationNumber(), int(solver.getConvergedReason()), *norms)
