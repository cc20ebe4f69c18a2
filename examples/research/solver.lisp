; What a differential equation of weights makes of where it starts ("Neural Ordinary Differential Equations", Chen et al.
; 2018): the classical Runge-Kutta steps in a loop, whose gradient is the loop's.
(require nn arrays kernels training)
(config inputs 4  width 8  steps 6  seconds 1.5)
(weights (up-w [width inputs] {:init (normal 0.5)}) (up-b [width]) (down-w [inputs width] {:init (normal 0.5)}) (down-b [inputs]))

(defn slope [y] (- (linear (tanh (linear y up-w up-b)) down-w down-b) (* 0.1 y)))
(defn step [y dt]
  (let [one (slope y)
        two (slope (+ y (* (* 0.5 dt) one)))
        three (slope (+ y (* (* 0.5 dt) two)))
        four (slope (+ y (* dt three)))]
    (+ y (* (/ dt 6.0) (+ (+ one four) (* 2.0 (+ two three)))))))

(entry fit [(x [batch inputs] f32) (wanted [batch inputs] f32)]
  (let [end (over [k 0 steps 1] [y x] (step y (/ seconds (* 1.0 steps))))]
    {:loss (/ (sum (sum (square (- end wanted)))) (* 1.0 (* (dim x 0) inputs))) :end end}))
(training fit)
