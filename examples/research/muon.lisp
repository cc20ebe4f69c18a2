; A network whose hidden matrices learn by Muon, and whose table and head by Lion ("Muon", Jordan et al. 2024; "Symbolic
; Discovery of Optimization Algorithms", Chen et al. 2023).
(require nn training)
(config vocab 12  width 8  classes 5)
(weights (table [vocab width] {:init (normal 0.3)})
  (one-w [(* 4 width) width] {:init (normal 0.3)}) (two-w [width (* 4 width)] {:init (normal 0.3)})
  (head-w [classes width] {:init (normal 0.3)}))

(entry fit [(words [batch] i32) (labels [batch] i32)]
  (let [x (rows table words)
        x (+ x (matmul-transposed (gelu (matmul-transposed x one-w)) two-w))
        [loss right] (cross-entropy (matmul-transposed x head-w) labels classes)]
    {:loss loss :right right}))
(training fit {:optimizer lion :groups [{:weights [one-w two-w] :optimizer muon}]})
